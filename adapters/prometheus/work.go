package prometheus

import (
	"context"
	"math"

	prom "github.com/prometheus/client_golang/prometheus"

	"mongodlm/internal/metrics"
)

// The type work holds the metrics of elections, loops, schedules and queues.
type work struct {
	counters   map[*metrics.Metric]*prom.CounterVec
	gauges     map[*metrics.Metric]*prom.GaugeVec
	histograms map[*metrics.Metric]*prom.HistogramVec
	descs      map[*metrics.Metric]*prom.Desc // of metrics that a scrape asks for
	asked      metrics.Asked
	names      metrics.Names
}

func newWork() *work {
	w := &work{map[*metrics.Metric]*prom.CounterVec{}, map[*metrics.Metric]*prom.GaugeVec{},
		map[*metrics.Metric]*prom.HistogramVec{}, map[*metrics.Metric]*prom.Desc{},
		metrics.Asked{}, metrics.Names{}}
	for _, m := range metrics.All {
		switch {
		case m.Asked:
			w.descs[m] = prom.NewDesc(m.Name, m.Help, m.Labels, nil)
		case m.Kind == metrics.Counter:
			w.counters[m] = prom.NewCounterVec(prom.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
		case m.Kind == metrics.Gauge:
			w.gauges[m] = prom.NewGaugeVec(prom.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
		default:
			w.histograms[m] = prom.NewHistogramVec(
				prom.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: metrics.Buckets}, m.Labels)
		}
	}
	return w
}

// Sampled implements the Observer of package internal/metrics. Elections, loops, schedules and
// queues of the Manager call it.
func (c *Collector) Sampled(all ...metrics.Sample) {
	w := c.work
	for _, s := range all {
		labels := w.names.Shown(s)
		switch s.Metric.Kind {
		case metrics.Counter:
			w.counters[s.Metric].WithLabelValues(labels...).Add(s.Value)
		case metrics.Gauge:
			if math.IsNaN(s.Value) {
				w.gauges[s.Metric].DeleteLabelValues(labels...)
				continue
			}
			w.gauges[s.Metric].WithLabelValues(labels...).Set(s.Value)
		default:
			w.histograms[s.Metric].WithLabelValues(labels...).Observe(s.Value)
		}
	}
}

// Asks implements the Observer of package internal/metrics.
func (c *Collector) Asks(ask func(context.Context) []metrics.Sample) (stop func()) {
	return c.work.asked.Asks(ask)
}

// told returns the metrics that samples update, in the order of metrics.All.
func (w *work) told() (all []prom.Collector) {
	for _, m := range metrics.All {
		switch {
		case w.counters[m] != nil:
			all = append(all, w.counters[m])
		case w.gauges[m] != nil:
			all = append(all, w.gauges[m])
		case w.histograms[m] != nil:
			all = append(all, w.histograms[m])
		}
	}
	return all
}

// ask calls the functions that Asks received, and returns their metrics.
func (w *work) ask() (all []prom.Metric) {
	for _, s := range w.asked.All(context.Background(), &w.names) {
		desc := w.descs[s.Metric]
		all = append(all, prom.MustNewConstMetric(desc, prom.GaugeValue, s.Value, s.Labels...))
	}
	return all
}
