package otel_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"mongodlm/adapters/otel"
	"mongodlm/internal/metrics"
	"mongodlm/internal/test/assert"
)

type noopMeter = noop.Meter

// A provider keeps what was measured, by instrument and attributes.
type provider struct {
	noop.MeterProvider
	noopMeter
	mu       sync.Mutex // guards the rest
	measured []string
	units    map[string]string
	callback metric.Callback
}

func (p *provider) Meter(string, ...metric.MeterOption) metric.Meter { return p }

func (p *provider) made(name, unit string) { p.units[name] = unit }

func (p *provider) note(kind, name string, value float64, with attribute.Set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := kind + " " + name
	for _, a := range with.ToSlice() {
		text += " " + string(a.Key) + "=" + a.Value.AsString()
	}
	if value != 1.5 {
		text += " another value"
	}
	p.measured = append(p.measured, text)
}

type counter struct {
	noop.Float64Counter
	p    *provider
	name string
}

func (c counter) Add(_ context.Context, v float64, with ...metric.AddOption) {
	c.p.note("counter", c.name, v, metric.NewAddConfig(with).Attributes())
}

func (p *provider) Float64Counter(name string, with ...metric.Float64CounterOption) (
	metric.Float64Counter, error) {
	p.made(name, metric.NewFloat64CounterConfig(with...).Unit())
	return counter{p: p, name: name}, nil
}

type gauge struct {
	noop.Float64Gauge
	p    *provider
	name string
}

func (g gauge) Record(_ context.Context, v float64, with ...metric.RecordOption) {
	g.p.note("gauge", g.name, v, metric.NewRecordConfig(with).Attributes())
}

func (p *provider) Float64Gauge(name string, with ...metric.Float64GaugeOption) (
	metric.Float64Gauge, error) {
	p.made(name, metric.NewFloat64GaugeConfig(with...).Unit())
	return gauge{p: p, name: name}, nil
}

type histogram struct {
	noop.Float64Histogram
	p    *provider
	name string
}

func (h histogram) Record(_ context.Context, v float64, with ...metric.RecordOption) {
	h.p.note("histogram", h.name, v, metric.NewRecordConfig(with).Attributes())
}

func (p *provider) Float64Histogram(name string, with ...metric.Float64HistogramOption) (
	metric.Float64Histogram, error) {
	p.made(name, metric.NewFloat64HistogramConfig(with...).Unit())
	return histogram{p: p, name: name}, nil
}

type observable struct {
	noop.Float64ObservableGauge
	name string
}

func (p *provider) Float64ObservableGauge(
	name string, with ...metric.Float64ObservableGaugeOption,
) (metric.Float64ObservableGauge, error) {
	p.made(name, metric.NewFloat64ObservableGaugeConfig(with...).Unit())
	return observable{name: name}, nil
}

func (p *provider) RegisterCallback(f metric.Callback, _ ...metric.Observable) (
	metric.Registration, error) {
	p.callback = f
	return noop.Registration{}, nil
}

type asked struct {
	noop.Observer
	p *provider
}

func (a asked) ObserveFloat64(o metric.Float64Observable, v float64, with ...metric.ObserveOption) {
	a.p.note("asked", o.(observable).name, v, metric.NewObserveConfig(with).Attributes())
}

// Every metric of the house has an instrument, by its name without the unit, and every value comes
// there with its labels.
func TestMeter_EveryMetric_IsMeasured(t *testing.T) {
	t.Parallel()
	p := &provider{units: map[string]string{}}
	m := assert.Value(otel.NewMeter(p))(t)
	var want []string
	kinds := map[metrics.Kind]string{metrics.Counter: "counter", metrics.Gauge: "gauge",
		metrics.Histogram: "histogram"}
	for _, one := range metrics.All {
		s := metrics.Sample{Metric: one, Labels: one.Labels, Value: 1.5}
		unit := "1"
		name, seconds := strings.CutSuffix(strings.TrimSuffix(one.Name, "_total"), "_seconds")
		if seconds {
			unit = "s"
		}
		name = strings.ReplaceAll(name, "_", ".")
		if p.units[name] != unit {
			t.Errorf("%s is measured in %q, want %q", name, p.units[name], unit)
		}
		kind := kinds[one.Kind]
		if one.Asked {
			kind = "asked"
			m.Asks(func(context.Context) []metrics.Sample { return []metrics.Sample{s} })
		} else {
			m.Sampled(s)
		}
		labels := slices.Sorted(slices.Values(one.Labels))
		for i, l := range labels {
			labels[i] = l + "=" + l
		}
		want = append(want, kind+" "+name+" "+strings.Join(labels, " "))
	}
	assert.Must(t, p.callback(t.Context(), asked{p: p}))
	slices.Sort(want)
	slices.Sort(p.measured)
	assert.Slices(t, p.measured, want, "measured %q\nwant %q")
}
