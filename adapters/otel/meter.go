package otel

import (
	"context"
	"fmt"
	"math"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"mongodlm/distlock"
	"mongodlm/internal/metrics"
)

// A Meter counts the work that is done under locks: terms, rounds, rows. It is a
// [distlock.Observer] that elections, loops, schedules and queues of the Manager tell. Safe for
// concurrent use.
type Meter struct {
	counters   map[*metrics.Metric]metric.Float64Counter
	gauges     map[*metrics.Metric]metric.Float64Gauge
	histograms map[*metrics.Metric]metric.Float64Histogram
	asked      metrics.Asked
	names      metrics.Names
}

var (
	_ distlock.Observer = (*Meter)(nil)
	_ metrics.Observer  = (*Meter)(nil)
)

// NewMeter makes a Meter whose instruments are those of the provider; nil: of the global one.
// docs/metrics.md lists the metrics, whose names here have dots and no unit: distlock.round is
// distlock_round_seconds. Errors: those of the provider.
func NewMeter(provider metric.MeterProvider) (*Meter, error) {
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	from := provider.Meter(scope)
	m := &Meter{counters: map[*metrics.Metric]metric.Float64Counter{},
		gauges:     map[*metrics.Metric]metric.Float64Gauge{},
		histograms: map[*metrics.Metric]metric.Float64Histogram{}}
	var asked []metric.Observable
	observables := map[*metrics.Metric]metric.Float64Observable{}
	var err error
	for _, one := range metrics.All {
		name, unit := named(one.Name)
		help, in := metric.WithDescription(one.Help), metric.WithUnit(unit)
		switch {
		case one.Asked:
			var gauge metric.Float64ObservableGauge
			gauge, err = from.Float64ObservableGauge(name, help, in)
			observables[one], asked = gauge, append(asked, gauge)
		case one.Kind == metrics.Counter:
			m.counters[one], err = from.Float64Counter(name, help, in)
		case one.Kind == metrics.Gauge:
			m.gauges[one], err = from.Float64Gauge(name, help, in)
		default:
			m.histograms[one], err = from.Float64Histogram(name, help, in,
				metric.WithExplicitBucketBoundaries(metrics.Buckets...))
		}
		if err != nil {
			return nil, fmt.Errorf("otel: %s: %w", name, err)
		}
	}
	_, err = from.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		for _, s := range m.asked.All(ctx, &m.names) {
			to.ObserveFloat64(observables[s.Metric], s.Value, attributes(s.Metric, s.Labels))
		}
		return nil
	}, asked...)
	if err != nil {
		return nil, fmt.Errorf("otel: %w", err)
	}
	return m, nil
}

// named are the name and the unit of a metric in the words of OpenTelemetry.
func named(name string) (dotted, unit string) {
	unit = "1"
	if strings.HasSuffix(name, "_seconds") {
		unit = "s"
	}
	for _, suffix := range []string{"_total", "_seconds"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.ReplaceAll(name, "_", "."), unit
}

func attributes(m *metrics.Metric, values []string) metric.MeasurementOption {
	all := make([]attribute.KeyValue, len(values))
	for i, value := range values {
		all[i] = attribute.String(m.Labels[i], clean(value))
	}
	return metric.WithAttributes(all...)
}

// Observe implements [distlock.Observer]: it counts no locks.
func (*Meter) Observe(distlock.Event) {}

// Sampled is called by those who do the work.
func (m *Meter) Sampled(all ...metrics.Sample) {
	ctx := context.Background()
	for _, s := range all {
		with := attributes(s.Metric, m.names.Shown(s))
		switch s.Metric.Kind {
		case metrics.Counter:
			m.counters[s.Metric].Add(ctx, s.Value, with)
		case metrics.Gauge:
			if !math.IsNaN(s.Value) { // an instrument forgets nothing
				m.gauges[s.Metric].Record(ctx, s.Value, with)
			}
		default:
			m.histograms[s.Metric].Record(ctx, s.Value, with)
		}
	}
}

// Asks is called by those who can be asked.
func (m *Meter) Asks(ask func(context.Context) []metrics.Sample) (stop func()) {
	return m.asked.Asks(ask)
}
