package otel

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"mongodlm/distlock"
)

const scope = "mongodlm/adapters/otel"

// The attributes of the spans. The fence is an integer, times are in seconds, and all other
// attributes are strings.
const (
	attrName     = attribute.Key("distlock.lock.name")
	attrWhy      = attribute.Key("distlock.lock.why")
	attrMode     = attribute.Key("distlock.lock.mode")
	attrFence    = attribute.Key("distlock.lock.fence")
	attrSession  = attribute.Key("distlock.lock.session")
	attrProcess  = attribute.Key("distlock.process")
	attrPrevious = attribute.Key("distlock.previous_process")
	attrOutcome  = attribute.Key("distlock.outcome")
	attrCause    = attribute.Key("distlock.cause")
	attrRule     = attribute.Key("distlock.takeover.rule")
	attrEvidence = attribute.Key("distlock.takeover.evidence")
	attrWaited   = attribute.Key("distlock.waited")
	attrHeld     = attribute.Key("distlock.held")
)

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
	attributes := []attribute.KeyValue{attrProcess.String(clean(e.Process)),
		attrOutcome.String(e.Kind.String())}
	text := func(key attribute.Key, value string) {
		if value != "" {
			attributes = append(attributes, key.String(clean(value)))
		}
	}
	text(attrName, e.Name)
	text(attrWhy, e.Why)
	text(attrMode, e.Mode)
	text(attrPrevious, e.Previous)
	text(attrCause, e.Cause())
	if !e.Session.IsZero() {
		attributes = append(attributes, attrSession.String(e.Session.Hex()))
	}
	if e.Fence != 0 {
		attributes = append(attributes, attrFence.Int64(e.Fence))
	}
	if e.Waited != 0 {
		attributes = append(attributes, attrWaited.Float64(e.Waited.Seconds()))
	}
	if e.Held != 0 {
		attributes = append(attributes, attrHeld.Float64(e.Held.Seconds()))
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

func byRule(e distlock.Event) (attributes []attribute.KeyValue) {
	if e.Rule != "" {
		attributes = append(attributes, attrRule.String(clean(e.Rule)))
	}
	if e.Evidence != "" {
		attributes = append(attributes, attrEvidence.String(clean(e.Evidence)))
	}
	return attributes
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

// clean makes text valid UTF-8 for a span. Another process may have written the text.
func clean(text string) string { return strings.ToValidUTF8(text, "?") }
