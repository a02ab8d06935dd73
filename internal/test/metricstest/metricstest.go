// Package metricstest provides an Observer that stores metrics, for tests.
package metricstest

import (
	"context"
	"math"
	"strings"
	"sync"

	"mongodlm/distlock"
	"mongodlm/internal/metrics"
)

// A Kept stores metrics. It adds up the values of a counter or histogram, and keeps the last value
// of a gauge. The zero value is ready to use.
type Kept struct {
	mu    sync.Mutex         // guards the rest
	all   map[string]float64 // by the name of the metric and the values of its labels
	asks  map[int]func(context.Context) []metrics.Sample
	asked int
}

var _ distlock.Observer = (*Kept)(nil)

// Observe implements distlock.Observer.
func (*Kept) Observe(distlock.Event) {}

// Sampled implements metrics.Observer.
func (k *Kept) Sampled(all ...metrics.Sample) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range all {
		k.keep(s)
	}
}

func (k *Kept) keep(s metrics.Sample) {
	key := s.Metric.Name + " " + strings.Join(s.Labels, " ")
	if k.all == nil {
		k.all = map[string]float64{}
	}
	if s.Metric.Kind == metrics.Gauge {
		delete(k.all, key)
		if math.IsNaN(s.Value) {
			return
		}
	}
	k.all[key] += s.Value
}

// Asks implements metrics.Observer.
func (k *Kept) Asks(ask func(context.Context) []metrics.Sample) (stop func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asks == nil {
		k.asks = map[int]func(context.Context) []metrics.Sample{}
	}
	k.asked++
	n := k.asked
	k.asks[n] = ask
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.asks, n)
	}
}

// Ask calls all registered functions and stores their samples. It returns the number of samples.
func (k *Kept) Ask(ctx context.Context) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, ask := range k.asks {
		for _, s := range ask(ctx) {
			k.keep(s)
			n++
		}
	}
	return n
}

// Of returns the value of a metric with the given labels. The boolean reports whether the value
// exists.
func (k *Kept) Of(m *metrics.Metric, labels ...string) (float64, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.all[m.Name+" "+strings.Join(labels, " ")]
	return v, ok
}
