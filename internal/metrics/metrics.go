package metrics

import (
	"context"
	"math"
	"sync"
	"time"
)

// A Kind is the meaning of a metric's values.
type Kind int

// The kinds.
const (
	Counter   Kind = iota + 1 // the value is added
	Gauge                     // the value is set
	Histogram                 // the value is one of many, in seconds
)

// A Metric describes one metric. Names follow Prometheus: the unit comes last, and counters end in
// _total.
type Metric struct {
	Name, Help string
	Kind       Kind
	Labels     []string // the name of the election, loop, schedule or queue comes last
	Outcomes   []string // all values of the label outcome, which is the first label
	Asked      bool     // read when the metrics are read, not sent as a sample
}

var roles = []string{"kind", "name"} // labels of an election, a loop or a schedule

// Metrics that are sent as samples.
var (
	Leads = &Metric{Name: "distlock_leads", Kind: Gauge, Labels: roles,
		Help: "1 while this process leads the election, or runs the loop or schedule; " +
			"0 while it stands by."}
	Terms = &Metric{Name: "distlock_terms_total", Kind: Counter, Labels: roles,
		Help: "Times that this process came to lead, or to run a loop or schedule."}
	Begun = &Metric{Name: "distlock_rounds_begun_total", Kind: Counter, Labels: roles,
		Help: "Rounds of loops and slots of schedules that began in this process."}
	Rounds = &Metric{Name: "distlock_rounds_total", Kind: Counter,
		Labels: []string{"outcome", "kind", "name"},
		Help:   "Those that ended, by outcome.", Outcomes: []string{"done", "failed"}}
	RoundTime = &Metric{Name: "distlock_round_seconds", Kind: Histogram, Labels: roles,
		Help: "How long they took."}
	LastRound = &Metric{Name: "distlock_round_ended_timestamp_seconds", Kind: Gauge, Labels: roles,
		Help: "When the last one ended in this process, since 1970."}
	Attempts = &Metric{Name: "distlock_queue_attempts_total", Kind: Counter,
		Labels: []string{"outcome", "queue"},
		Help: "Rows whose claims ended in this process: done, to be tried again, dead, given back, " +
			"or lost.",
		Outcomes: []string{"done", "retrying", "dead", "given_back", "lost"}}
	HandlerTime = &Metric{Name: "distlock_queue_handler_seconds", Kind: Histogram,
		Labels: []string{"queue"}, Help: "How long handlers took."}
	Stuck = &Metric{Name: "distlock_queue_stuck_handlers", Kind: Gauge, Labels: []string{"queue"},
		Help: "Handlers of this process that do not return although their contexts have ended."}
)

// Metrics that are read from the server on request.
var (
	Rows = &Metric{Name: "distlock_queue_rows", Kind: Gauge, Labels: []string{"state", "queue"},
		Asked: true, Help: "Rows by state, 10,000 at most; in one process of the queue."}
	Oldest = &Metric{Name: "distlock_queue_oldest_seconds", Kind: Gauge,
		Labels: []string{"row", "queue"}, Asked: true,
		Help: "Age of the first ready row, of the row that is the latest, and of the oldest that this " +
			"process has claimed."}
)

// All lists the metrics of this package.
var All = []*Metric{
	Leads, Terms, Begun, Rounds, RoundTime, LastRound, Attempts, HandlerTime, Stuck, Rows,
	Oldest,
}

// Buckets are the upper bounds of a histogram, in seconds.
var Buckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900,
	3600, 14400}

// MostNames is the number of elections, loops, schedules and queues that an adapter distinguishes.
// The others share one series without a name.
const MostNames = 100

// AskedEvery is the time for which an answer is reused. More frequent reads send no commands.
const AskedEvery = 15 * time.Second

// AskTimeout is the longest wait for all answers.
const AskTimeout = 10 * time.Second

// A Sample is one value, with the values of the labels. A gauge with the value [Gone] is no longer
// exported.
type Sample struct {
	Metric *Metric
	Labels []string
	Value  float64
}

// Zeros returns samples with the value zero for all series of a name. Without them Prometheus would
// not count the first event.
func Zeros(labels []string, all ...*Metric) (zeros []Sample) {
	for _, m := range all {
		if m.Outcomes == nil {
			zeros = append(zeros, Sample{m, labels, 0})
		}
		for _, outcome := range m.Outcomes {
			zeros = append(zeros, Sample{m, append([]string{outcome}, labels...), 0})
		}
	}
	return zeros
}

// Leading reports that this process leads. It reports the end when ctx ends or the function over is
// called. That function returns after the report.
func Leading(o Observer, ctx context.Context, kind, name string) (over func()) {
	labels := []string{kind, name}
	o.Sampled(Sample{Leads, labels, 1}, Sample{Terms, labels, 1})
	ended := sync.OnceFunc(func() { o.Sampled(Sample{Leads, labels, 0}) })
	stop := context.AfterFunc(ctx, ended)
	return func() {
		stop()
		ended() // waits for a report under way
	}
}

// Gone is the value of a gauge that no longer exists.
var Gone = math.NaN()

// StandsBy reports that this process waits to lead, until the function over is called.
func StandsBy(o Observer, kind, name string) (over func()) {
	labels := []string{kind, name}
	o.Sampled(Zeros(labels, Leads, Terms)...)
	return func() { o.Sampled(Sample{Leads, labels, Gone}) }
}

// An Observer receives samples, and functions that return samples. Working goroutines call it, so
// both methods return immediately.
type Observer interface {
	// Sampled receives samples.
	Sampled(all ...Sample)
	// Asks receives a function that returns samples. The Observer calls it when the metrics are
	// read, until stop is called.
	Asks(ask func(context.Context) []Sample) (stop func())
}

// Of returns the observer of a Manager as an Observer of this package, or [None] if it is not one.
// The result recovers from panics of the observer.
func Of(observer any) Observer {
	if o, ok := observer.(Observer); ok {
		return safe{o}
	}
	return None{}
}

// None is an Observer that ignores everything.
type None struct{}

// Sampled implements [Observer].
func (None) Sampled(...Sample) {}

// Asks implements [Observer].
func (None) Asks(func(context.Context) []Sample) (stop func()) { return func() {} }

type safe struct{ of Observer }

func (s safe) Sampled(all ...Sample) {
	defer func() { _ = recover() }() // a panic of the observer does not end a round
	s.of.Sampled(all...)
}

func (s safe) Asks(ask func(context.Context) []Sample) (stop func()) {
	defer func() {
		if recover() != nil {
			stop = func() {}
		}
	}()
	of := s.of.Asks(ask)
	return func() {
		defer func() { _ = recover() }()
		of()
	}
}
