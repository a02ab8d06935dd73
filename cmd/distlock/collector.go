package main

import (
	"cmp"
	"context"
	"sync"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/cmd/internal/census"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/clock"
)

// Limits on the load that the scrapes put on the server.
const (
	collectEvery  = 15 * time.Second // a scrape within this time gets the previous metrics
	collectLimit  = 5 * time.Second
	eventSpan     = time.Hour // the period of the history to count
	maxEventCount = 1000      // maximum count of events of a kind
)

// holderStates are the states of a holder. A late holder has missed three pings. A silent holder
// has not pinged for the takeover time. A condemned holder was declared dead by a contender. A
// foreign holder belongs to another lock manager.
var holderStates = []string{"alive", "late", "silent", "condemned", "no_ping", "foreign"}

// eventKinds are the kinds of events that the metrics count. An operator must learn of these events
// even after the process that recorded them has ended.
var eventKinds = []string{words.Broken, words.Dropped}

var (
	storeUp = prom.NewDesc("distlock_store_up",
		"1 if the locks could be read and the database ever had a lock.", nil, nil)
	storeHeld = prom.NewDesc("distlock_store_held_locks",
		"Locks that are held, by the state of the holder's process.", []string{"holder"}, nil)
	storeEvents = prom.NewDesc("distlock_store_events", "Entries of the history in the last hour, "+
		"by kind; at most 1000 are counted.", []string{"kind"}, nil)
)

// A storeCollector collects metrics of the locks of all processes. These include dead processes,
// which cannot be scraped. A storeCollector reads the locks during a scrape.
type storeCollector struct {
	ctx   context.Context // for all commands, because Collect receives no context
	st    *store
	clock clock.Clock

	mu     sync.Mutex    // guards the fields below
	readAt time.Duration // monotonic time
	last   []prom.Metric
}

func newStoreCollector(ctx context.Context, st *store) *storeCollector {
	return &storeCollector{ctx: ctx, st: st, clock: clock.From(ctx)}
}

// Describe implements [prom.Collector].
func (o *storeCollector) Describe(to chan<- *prom.Desc) {
	to <- storeUp
	to <- storeHeld
	to <- storeEvents
}

// Collect implements [prom.Collector].
func (o *storeCollector) Collect(to chan<- prom.Metric) {
	for _, m := range o.read() {
		to <- m
	}
}

func (o *storeCollector) read() []prom.Metric {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.clock.Now().Mono; o.last != nil && now-o.readAt < collectEvery {
		return o.last
	}
	ctx, cancel := context.WithTimeout(o.ctx, collectLimit)
	defer cancel()
	locks, err := census.Read(census.Unbounded, o.st.Locks(ctx))
	never := err == nil && len(locks.Locks)+len(locks.Malformed) == 0 && o.st.neverUsed(ctx)
	var up float64
	var held map[string]int64 // nil if unknown
	if err == nil && !never {
		up, held = 1, map[string]int64{}
		for _, lock := range locks.Locks {
			for _, h := range lock.Holders {
				if h.Held {
					held[stateOf(h)]++
				}
			}
		}
	}
	all := []prom.Metric{prom.MustNewConstMetric(storeUp, prom.GaugeValue, up)}
	gauge := func(of *prom.Desc, n int64, label string) {
		all = append(all, prom.MustNewConstMetric(of, prom.GaugeValue, float64(n), label))
	}
	for _, state := range holderStates {
		if held != nil {
			gauge(storeHeld, held[state], state)
		}
	}
	if now, err := census.Now(ctx, o.st.client); err == nil && !never {
		for _, kind := range eventKinds {
			if n, err := o.events(ctx, cmp.Or(now, o.clock.Now().Wall), kind); err == nil {
				gauge(storeEvents, n, kind)
			}
		}
	}
	o.readAt, o.last = o.clock.Now().Mono, all
	return all
}

func stateOf(h distlock.LockInfo) string {
	const missed = 3 // pings
	switch {
	case h.Condemned:
		return "condemned"
	case !h.HasPing:
		return "no_ping"
	case words.Silent(h):
		return "silent"
	case h.Foreign:
		return "foreign"
	case h.PingEvery > 0 && h.PingAge > missed*h.PingEvery:
		return "late"
	}
	return "alive"
}

// events counts the events of a kind in the last hour, at most maxEventCount. The query uses the
// index of the history by time.
func (o *storeCollector) events(ctx context.Context, now time.Time, kind string) (int64, error) {
	since := bson.D{{Key: "$gt", Value: bson.NewDateTimeFromTime(now.Add(-eventSpan))}}
	return o.st.primary(o.st.database).Collection(history.Collection).CountDocuments(ctx,
		bson.D{{Key: "at", Value: since}, {Key: "kind", Value: kind}},
		options.Count().SetLimit(maxEventCount))
}
