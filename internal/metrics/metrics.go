package metrics

import (
	"context"
	"math"
	"sync"
	"time"
)

// A Kind is the type of a metric, as in Prometheus.
type Kind int

// The kinds of metrics.
const (
	Counter   Kind = iota + 1 // the value is added
	Gauge                     // the value is set
	Histogram                 // the value is one observation, in seconds
)

// A Metric describes one metric. Names follow Prometheus: the unit is last, and the name of a
// counter ends in _total.
type Metric struct {
	Name, Help string
	Kind       Kind
	Labels     []string // the last label is the name of the election, loop, schedule or queue
	Outcomes   []string // all values of the label outcome, which is the first label
	Asked      bool     // computed when the metrics are read, not sent as a sample
}

var roles = []string{"kind", "name"} // labels of an election, a loop or a schedule

// Metrics that are sent as samples.
var (
	Leads = &Metric{Name: "distlock_leads", Kind: Gauge, Labels: roles,
		Help: "1 while this process leads the election, or runs the loop or schedule; " +
			"0 while it waits to do so."}
	Terms = &Metric{Name: "distlock_terms_total", Kind: Counter, Labels: roles,
		Help: "Times that this process began to lead, or to run a loop or schedule."}
	Begun = &Metric{Name: "distlock_rounds_begun_total", Kind: Counter, Labels: roles,
		Help: "Rounds of loops and slots of schedules that began in this process."}
	Rounds = &Metric{Name: "distlock_rounds_total", Kind: Counter,
		Labels:   []string{"outcome", "kind", "name"},
		Help:     "Rounds of loops and slots of schedules that ended in this process, by outcome.",
		Outcomes: []string{"done", "failed"}}
	RoundTime = &Metric{Name: "distlock_round_seconds", Kind: Histogram, Labels: roles,
		Help: "Duration of rounds of loops and slots of schedules."}
	LastRound = &Metric{Name: "distlock_round_ended_timestamp_seconds", Kind: Gauge, Labels: roles,
		Help: "Unix time at which the last round or slot ended in this process."}
	Attempts = &Metric{Name: "distlock_queue_attempts_total", Kind: Counter,
		Labels: []string{"outcome", "queue"},
		Help: "Rows whose claims ended in this process, by outcome (done, retrying, dead, given_back, " +
			"lost).",
		Outcomes: []string{"done", "retrying", "dead", "given_back", "lost"}}
	HandlerTime = &Metric{Name: "distlock_queue_handler_seconds", Kind: Histogram,
		Labels: []string{"queue"}, Help: "Duration of handlers."}
	Stuck = &Metric{Name: "distlock_queue_stuck_handlers", Kind: Gauge, Labels: []string{"queue"},
		Help: "Handlers of this process that have not returned 30 s after the end of their contexts."}
)

// Metrics that are computed when they are read.
var (
	Rows = &Metric{Name: "distlock_queue_rows", Kind: Gauge, Labels: []string{"state", "queue"},
		Asked: true, Help: "Rows by state, counted up to 10,000; one process of the queue reports them."}
	Oldest = &Metric{Name: "distlock_queue_oldest_seconds", Kind: Gauge,
		Labels: []string{"row", "queue"}, Asked: true,
		Help: "Wait of the next ready row (ready), lateness of the latest due row or retry (late), and " +
			"age of the oldest claim of this process (claimed)."}
)

// All lists the metrics of this package.
var All = []*Metric{
	Leads, Terms, Begun, Rounds, RoundTime, LastRound, Attempts, HandlerTime, Stuck, Rows,
	Oldest,
}

// Buckets are the upper bounds of a histogram, in seconds.
var Buckets = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900,
	3600, 14400}

// MostNames is the maximum number of names in the labels of an adapter. All further elections,
// loops, schedules and queues share one series without a name.
const MostNames = 100

// AskedEvery is the time for which samples are reused. More frequent reads send no command.
const AskedEvery = 15 * time.Second

// AskTimeout is the timeout of the functions that [Asked] calls.
const AskTimeout = 10 * time.Second

// A Sample is one value of a metric, with the values of the labels. An adapter that receives the
// value [Gone] removes the gauge.
type Sample struct {
	Metric *Metric
	Labels []string
	Value  float64
}

// Zeros returns a sample with the value zero for each series with these labels. Prometheus does not
// count the first event of a series that has no value before the event.
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

// Leading reports to o that this process leads. It reports the end of the leadership when ctx ends
// or the returned function is called. The returned function returns after that report.
func Leading(o Observer, ctx context.Context, kind, name string) (over func()) {
	labels := []string{kind, name}
	o.Sampled(Sample{Leads, labels, 1}, Sample{Terms, labels, 1})
	ended := sync.OnceFunc(func() { o.Sampled(Sample{Leads, labels, 0}) })
	stop := context.AfterFunc(ctx, ended)
	return func() {
		stop()
		ended() // waits for a report in progress
	}
}

// Gone is the value of a gauge that an adapter must remove.
var Gone = math.NaN()

// StandsBy reports to o that this process waits to lead. The returned function removes the gauge
// [Leads].
func StandsBy(o Observer, kind, name string) (over func()) {
	labels := []string{kind, name}
	o.Sampled(Zeros(labels, Leads, Terms)...)
	return func() { o.Sampled(Sample{Leads, labels, Gone}) }
}

// An Observer receives samples, and functions that return samples. Both methods must return
// immediately, because their callers may hold a lock.
type Observer interface {
	// Sampled receives samples.
	Sampled(all ...Sample)
	// Asks receives a function that returns samples. The Observer calls this function when the metrics
	// are read. It no longer calls the function after a call of stop.
	Asks(ask func(context.Context) []Sample) (stop func())
}

// Of returns the observer of a Manager as an [Observer] of this package. If the observer does not
// implement that interface, Of returns [None]. The result recovers from panics of the observer.
func Of(observer any) Observer {
	if o, ok := observer.(Observer); ok {
		return safe{o}
	}
	return None{}
}

// A None is an Observer that ignores all calls.
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
