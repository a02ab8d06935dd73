package prometheus

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	prom "github.com/prometheus/client_golang/prometheus"

	"mongodlm/distlock"
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
	pings, releasing                          prom.Histogram

	work *work
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

// The upper bounds of the histogram buckets, in seconds. A command takes milliseconds. A wait may
// include a takeover, which takes minutes.
var (
	commandBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	lockBuckets    = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300,
		900, 3600, 14400}
)

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
	c := &Collector{names: map[string]bool{}, work: newWork()}
	for _, name := range o.Names {
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf(
				"prometheus: Names has %q, which is not valid UTF-8: no lock has that name", name)
		}
		c.names[name] = true
	}
	options := func(d description) prom.CounterOpts {
		return prom.CounterOpts{Name: d.name, Help: d.help}
	}
	count := func(d description, labels ...string) *prom.CounterVec {
		return prom.NewCounterVec(options(d), c.labels(labels))
	}
	spread := func(d description, labels ...string) *prom.HistogramVec {
		return prom.NewHistogramVec(
			prom.HistogramOpts{Name: d.name, Help: d.help, Buckets: lockBuckets}, c.labels(labels))
	}
	short := func(d description) prom.Histogram {
		return prom.NewHistogram(prom.HistogramOpts{Name: d.name, Help: d.help, Buckets: commandBuckets})
	}
	c.acquisitions = count(acquisitions, "outcome", "cause")
	c.takeovers = count(takeovers, "rule")
	c.losses = count(losses, "cause")
	c.releases = count(releases, "cause")
	c.waits = spread(waits, "outcome")
	c.holds = spread(holds)
	c.evictions = prom.NewCounterVec(options(evictions), []string{"party", "rule"})
	c.condemnations = prom.NewCounterVec(options(condemnations), []string{"rule"})
	c.breaks, c.dropped = prom.NewCounter(options(breaks)), prom.NewCounter(options(dropped))
	c.pings, c.releasing = short(pingTimes), short(releaseTimes)
	c.begin(o.Names)
	return c, nil
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
func (c *Collector) labels(all []string) []string {
	if len(c.names) > 0 {
		return append(slices.Clip(all), "lock")
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

// counted returns the metrics that events and samples update.
func (c *Collector) counted() []prom.Collector {
	return append(c.work.told(),
		c.acquisitions, c.takeovers, c.losses, c.releases, c.evictions, c.condemnations, c.breaks,
		c.dropped, c.waits, c.holds, c.pings, c.releasing,
	)
}

// Describe implements [prom.Collector].
func (c *Collector) Describe(to chan<- *prom.Desc) {
	for _, m := range c.counted() {
		m.Describe(to)
	}
	for _, r := range readings {
		to <- r.desc
	}
	for _, desc := range c.work.descs {
		to <- desc
	}
	to <- commandsDesc
	to <- listeningDesc
	to <- serverDesc
}

// Collect implements [prom.Collector]. It gathers all metrics before it sends the first one, so a
// slow reader does not delay events.
func (c *Collector) Collect(to chan<- prom.Metric) {
	gathered := make(chan prom.Metric)
	go func() { // ends because Collect reads all metrics
		defer close(gathered)
		for _, m := range c.counted() {
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
	all = append(all, c.work.ask()...)
	for _, m := range all {
		to <- m
	}
}
