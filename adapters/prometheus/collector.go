package prometheus

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	prom "github.com/prometheus/client_golang/prometheus"

	"mongodlm/distlock"
	"mongodlm/internal/metrics"
)

// maxNames is the maximum number of Options.Names.
const maxNames = 100

// Options are the settings of a Collector. The zero value is usable.
type Options struct {
	// Names lists the locks whose names appear in the label "lock", at most 100. The metrics of all
	// other locks have an empty label. If Names is empty, no metric has this label. Each name costs up
	// to about 200 series.
	Names []string
}

// A Collector exports the metrics of one Manager. It is a [distlock.Observer] and a
// [prom.Collector]. It is safe for concurrent use.
type Collector struct {
	names  map[string]bool
	source atomic.Pointer[Source]

	acquisitions, takeovers, losses, releases *prom.CounterVec
	evictions, condemnations                  *prom.CounterVec
	breaks, dropped                           prom.Counter
	waits, holds                              *prom.HistogramVec
	pings, releasing                          prom.Observer
	sampled                                   map[*metrics.Metric]prom.Collector
	counted                                   []prom.Collector // all metrics above

	descs map[*metrics.Metric]*prom.Desc // of metrics that a scrape asks for
	asked metrics.Asked
	shown metrics.Names // in the labels of elections, loops, schedules and queues
}

// A Source provides the metrics of a process during a scrape. A *distlock.Manager is a Source.
type Source interface {
	Stats() distlock.Stats
	Config() distlock.Config
}

var (
	_ distlock.Observer = (*Collector)(nil)
	_ prom.Collector    = (*Collector)(nil)
)

// commandBuckets are the upper bounds of the durations of commands, in seconds.
var commandBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

var (
	rules      = []string{"watch", "witnesses", "at_once", "condemned", "lease"}
	lossCauses = []string{"no_ping", "condemned", "ping_changed", "lease", "taken", "removed",
		"malformed"}
)

// New returns a Collector. It returns an error if Options.Names has more than 100 names, or a name
// that is not valid UTF-8.
func New(o Options) (*Collector, error) {
	if len(o.Names) > maxNames {
		return nil, fmt.Errorf("prometheus: Names has %d names of locks, at most %d are allowed: each "+
			"is a set of series of its own", len(o.Names), maxNames)
	}
	c := &Collector{names: map[string]bool{}, sampled: map[*metrics.Metric]prom.Collector{},
		descs: map[*metrics.Metric]*prom.Desc{}}
	for _, name := range o.Names {
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf(
				"prometheus: Names has %q, which is not valid UTF-8: no lock has that name", name)
		}
		c.names[name] = true
	}
	c.create()
	c.begin(o.Names)
	return c, nil
}

func (c *Collector) create() {
	for _, m := range metrics.All {
		switch {
		case m.Asked:
			c.descs[m] = prom.NewDesc(m.Name, m.Help, m.Labels, nil)
		case m.Kind == metrics.Counter:
			c.sampled[m] = c.count(m.Name, m.Help, m.Labels...)
		case m.Kind == metrics.Gauge:
			gauge := prom.NewGaugeVec(prom.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
			c.sampled[m], c.counted = gauge, append(c.counted, gauge)
		default:
			c.sampled[m] = c.spread(m.Name, m.Help, metrics.Buckets, m.Labels...)
		}
	}
	// Names follow Prometheus: they end in the base unit, and names of counters end in _total.
	c.acquisitions = c.count("distlock_acquisitions_total",
		"Calls to acquire a lock, by outcome (acquired, granted, taken_over, refused, gave_up) and "+
			"cause.", c.labels("outcome", "cause")...)
	c.takeovers = c.count("distlock_takeovers_total",
		"Locks acquired from a dead holder, by takeover rule.", c.labels("rule")...)
	c.losses = c.count("distlock_losses_total",
		"Guards that were lost before they were released, by cause.", c.labels("cause")...)
	c.releases = c.count("distlock_releases_total",
		"Releases; the cause is empty if the lock was still trusted when it was freed.",
		c.labels("cause")...)
	c.evictions = c.count("distlock_evictions_total",
		"Dead holders and waiters that this process evicted, by takeover rule.", "party", "rule")
	c.condemnations = c.count("distlock_condemnations_total",
		"Processes that this one declared dead, by takeover rule.", "rule")
	c.breaks = c.count("distlock_breaks_total",
		"Locks that an operator broke through this process.").WithLabelValues()
	c.dropped = c.count("distlock_dropped_guards_total",
		"Guards that were garbage-collected without a release; this is a programming error.").
		WithLabelValues()
	c.waits = c.spread("distlock_wait_seconds",
		"Time from a call to acquire a lock to its outcome.", metrics.Buckets, c.labels("outcome")...)
	c.holds = c.spread("distlock_hold_seconds", "Time from acquiring a lock to its release.",
		metrics.Buckets, c.labels()...)
	c.pings = c.spread("distlock_ping_seconds", "Round trips of acknowledged pings.",
		commandBuckets).WithLabelValues()
	c.releasing = c.spread("distlock_release_seconds", "Duration of releases, including retries.",
		commandBuckets).WithLabelValues()
}

func (c *Collector) count(name, help string, labels ...string) *prom.CounterVec {
	v := prom.NewCounterVec(prom.CounterOpts{Name: name, Help: help}, labels)
	c.counted = append(c.counted, v)
	return v
}

func (c *Collector) spread(name, help string, buckets []float64,
	labels ...string) *prom.HistogramVec {
	v := prom.NewHistogramVec(prom.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	c.counted = append(c.counted, v)
	return v
}

// begin creates the series of rare events with the value zero. Otherwise Prometheus does not count
// the first event of a series.
func (c *Collector) begin(names []string) {
	for _, name := range append([]string{""}, names...) {
		e := distlock.Event{Name: name}
		for _, rule := range rules {
			c.takeovers.WithLabelValues(c.of(e, rule)...)
		}
		for _, cause := range lossCauses {
			c.losses.WithLabelValues(c.of(e, cause)...)
		}
	}
	for _, rule := range rules {
		c.condemnations.WithLabelValues(rule)
		c.evictions.WithLabelValues("holder", rule)
		c.evictions.WithLabelValues("waiter", rule)
	}
	c.evictions.WithLabelValues("waiter", "silent")
}

// labels adds the label "lock" to the labels of a metric, if the Collector has names.
func (c *Collector) labels(all ...string) []string {
	if len(c.names) > 0 {
		all = append(all, "lock")
	}
	return all
}

func (c *Collector) of(e distlock.Event, values ...string) []string {
	if len(c.names) == 0 {
		return values
	}
	name := e.Name
	if !c.names[name] {
		name = ""
	}
	return append(slices.Clip(values), name)
}

// Watch sets the Source that a scrape reads. Without a Source, a scrape does not return the state
// of the process. A later call replaces the Source.
func (c *Collector) Watch(s Source) { c.source.Store(&s) }

func word(text string) string { return strings.ReplaceAll(text, " ", "_") }

// Observe implements [distlock.Observer].
func (c *Collector) Observe(e distlock.Event) {
	cause := word(e.Cause())
	switch e.Kind {
	case distlock.EventAcquired, distlock.EventGranted, distlock.EventTakenOver, distlock.EventRefused,
		distlock.EventGaveUp:
		outcome := word(e.Kind.String())
		c.acquisitions.WithLabelValues(c.of(e, outcome, cause)...).Inc()
		c.waits.WithLabelValues(c.of(e, outcome)...).Observe(e.Waited.Seconds())
		if e.Kind == distlock.EventTakenOver {
			c.takeovers.WithLabelValues(c.of(e, word(e.Rule))...).Inc()
		}
	case distlock.EventReleased:
		c.releases.WithLabelValues(c.of(e, cause)...).Inc()
		c.holds.WithLabelValues(c.of(e)...).Observe(e.Held.Seconds())
		c.releasing.Observe(e.Waited.Seconds())
	case distlock.EventLost:
		c.losses.WithLabelValues(c.of(e, cause)...).Inc()
	case distlock.EventDropped:
		c.dropped.Inc()
		c.holds.WithLabelValues(c.of(e)...).Observe(e.Held.Seconds())
	case distlock.EventBroken:
		c.breaks.Inc()
	case distlock.EventEvicted:
		party := "holder"
		if e.Fence == 0 {
			party = "waiter"
		}
		c.evictions.WithLabelValues(party, word(e.Rule)).Inc()
	case distlock.EventCondemned:
		c.condemnations.WithLabelValues(word(e.Rule)).Inc()
	case distlock.EventPing:
		c.pings.Observe(e.Waited.Seconds())
	}
}

// Sampled implements the Observer of package internal/metrics. Elections, loops, schedules and
// queues of the Manager call it.
func (c *Collector) Sampled(all ...metrics.Sample) {
	for _, s := range all {
		labels := c.shown.Shown(s)
		switch m := c.sampled[s.Metric].(type) {
		case *prom.CounterVec:
			m.WithLabelValues(labels...).Add(s.Value)
		case *prom.GaugeVec:
			if math.IsNaN(s.Value) {
				m.DeleteLabelValues(labels...)
				continue
			}
			m.WithLabelValues(labels...).Set(s.Value)
		case *prom.HistogramVec:
			m.WithLabelValues(labels...).Observe(s.Value)
		}
	}
}

// Asks implements the Observer of package internal/metrics.
func (c *Collector) Asks(ask func(context.Context) []metrics.Sample) (stop func()) {
	return c.asked.Asks(ask)
}

// Describe implements [prom.Collector].
func (c *Collector) Describe(to chan<- *prom.Desc) {
	for _, m := range c.counted {
		m.Describe(to)
	}
	for _, m := range read(distlock.Stats{}, distlock.Config{}) {
		to <- m.Desc()
	}
	for _, desc := range c.descs {
		to <- desc
	}
	to <- commandsDesc // read returns this metric only for commands that were sent
}

// Collect implements [prom.Collector]. It gathers all metrics before it sends the first one, so a
// slow reader does not delay events.
func (c *Collector) Collect(to chan<- prom.Metric) {
	gathered := make(chan prom.Metric)
	go func() { // ends because Collect reads all metrics
		defer close(gathered)
		for _, m := range c.counted {
			m.Collect(gathered)
		}
	}()
	var all []prom.Metric
	for m := range gathered {
		all = append(all, m)
	}
	if source := c.source.Load(); source != nil {
		all = append(all, read((*source).Stats(), (*source).Config())...)
	}
	for _, s := range c.asked.All(context.Background(), &c.shown) {
		desc := c.descs[s.Metric]
		all = append(all, prom.MustNewConstMetric(desc, prom.GaugeValue, s.Value, s.Labels...))
	}
	for _, m := range all {
		to <- m
	}
}
