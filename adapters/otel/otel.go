package otel

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"mongodlm/distlock"
)

const scope = "mongodlm/adapters/otel"

// Options are the settings of a Tracer. The zero value is usable.
type Options struct {
	// Provider makes the tracer. The default is the global provider of OpenTelemetry.
	Provider trace.TracerProvider
}

// A Tracer records events as spans. It is a [distlock.Observer] that also receives contexts. Each
// call of Observe waits for the program's span processor, so use a processor that exports in the
// background. A Tracer is safe for concurrent use.
type Tracer struct{ tracer trace.Tracer }

var _ distlock.Observer = (*Tracer)(nil)

// New returns a Tracer.
func New(o Options) *Tracer {
	if o.Provider == nil {
		o.Provider = otel.GetTracerProvider()
	}
	return &Tracer{o.Provider.Tracer(scope)}
}

// Observe implements [distlock.Observer]. The spans have no parents.
func (t *Tracer) Observe(e distlock.Event) { t.ObserveContext(context.Background(), e) }

// ObserveContext records the spans of an event, with the span in ctx as the parent. Package
// distlock calls it instead of Observe.
func (t *Tracer) ObserveContext(ctx context.Context, e distlock.Event) {
	switch e.Kind {
	case distlock.EventAcquired, distlock.EventGranted, distlock.EventTakenOver, distlock.EventRefused,
		distlock.EventGaveUp:
		t.span(ctx, "distlock acquire", e)
	case distlock.EventReleased:
		t.span(ctx, "distlock release", e)
	case distlock.EventPing, distlock.EventPingFailed:
	default:
		t.span(ctx, "distlock "+e.Kind.String(), e)
	}
}

// span records a completed span, which ends at e.At and lasts for e.Waited.
func (t *Tracer) span(ctx context.Context, name string, e distlock.Event) {
	attributes := texts("distlock.process", e.Process, "distlock.outcome", e.Kind.String(),
		"distlock.lock.name", e.Name, "distlock.lock.why", e.Why, "distlock.lock.mode", e.Mode,
		"distlock.previous_process", e.Previous, "distlock.cause", e.Cause())
	if !e.Session.IsZero() {
		attributes = append(attributes, attribute.String("distlock.lock.session", e.Session.Hex()))
	}
	if e.Fence != 0 {
		attributes = append(attributes, attribute.Int64("distlock.lock.fence", e.Fence))
	}
	if e.Waited != 0 {
		attributes = append(attributes, attribute.Float64("distlock.waited", e.Waited.Seconds()))
	}
	if e.Held != 0 {
		attributes = append(attributes, attribute.Float64("distlock.held", e.Held.Seconds()))
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithTimestamp(e.At.Add(-e.Waited)),
		trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(attributes...))
	defer span.End(trace.WithTimestamp(e.At))
	switch {
	case failed(e):
		span.RecordError(e.Err, trace.WithTimestamp(e.At))
		span.SetStatus(codes.Error, e.Cause())
	case e.Kind == distlock.EventTakenOver:
		_, takeover := t.tracer.Start(ctx, "distlock takeover", trace.WithTimestamp(e.At),
			trace.WithAttributes(append(attributes, byRule(e)...)...))
		takeover.End(trace.WithTimestamp(e.At))
	case e.Kind == distlock.EventGranted || e.Rule != "":
		span.AddEvent(e.Kind.String(), trace.WithTimestamp(e.At), trace.WithAttributes(byRule(e)...))
	}
}

func byRule(e distlock.Event) []attribute.KeyValue {
	return texts("distlock.takeover.rule", e.Rule, "distlock.takeover.evidence", e.Evidence)
}

// texts returns the attributes whose values are not empty. Its arguments alternate between keys and
// values. A value may be invalid UTF-8, because another process may have written it.
func texts(pairs ...string) (all []attribute.KeyValue) {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			all = append(all, attribute.String(pair[0], strings.ToValidUTF8(pair[1], "?")))
		}
	}
	return all
}

// failed reports whether the span of an event has the status Error. A held lock, a canceled context
// and a closed Manager are not errors.
func failed(e distlock.Event) bool {
	switch e.Cause() {
	case "", "held", "canceled", "closed":
		return false
	}
	return true
}
