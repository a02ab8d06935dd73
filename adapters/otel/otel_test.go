package otel_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"mongodlm/adapters/otel"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/locktest"
)

func TestMain(m *testing.M) { effort.Main(m) }

type traced struct {
	*locktest.World
	t        *testing.T
	recorder *tracetest.SpanRecorder
	provider *sdk.TracerProvider
}

func inBubble(t *testing.T, test func(t *testing.T, w *traced)) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, w *locktest.World) {
		recorder := tracetest.NewSpanRecorder()
		test(t, &traced{w, t, recorder, sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))})
	})
}

func (w *traced) start() *distlock.Manager {
	w.t.Helper()
	return w.Start(func(cfg *distlock.Config) {
		cfg.Observer = otel.New(otel.Options{Provider: w.provider})
	}).Manager
}

func (w *traced) take(name string) []sdk.ReadOnlySpan {
	other := func(s sdk.ReadOnlySpan) bool { return s.Name() != name }
	return slices.DeleteFunc(w.recorder.Ended(), other)
}

func (w *traced) only(name string) sdk.ReadOnlySpan {
	w.t.Helper()
	spans := w.take(name)
	if len(spans) != 1 {
		w.t.Fatalf("%d spans %q, want 1: %v", len(spans), name, w.recorder.Ended())
	}
	return spans[0]
}

func attr(attributes []attribute.KeyValue, key string) string {
	for _, a := range attributes {
		if string(a.Key) == key {
			return fmt.Sprint(a.Value.AsInterface())
		}
	}
	return ""
}

func lasted(s sdk.ReadOnlySpan) time.Duration { return s.EndTime().Sub(s.StartTime()) }

// The spans of an acquisition and of its release are children of the caller's span. The span of the
// acquisition lasts from the call of Lock to its return.
func TestTracer_WaitAndRelease_AreSpansOfTheCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, w *traced) {
		first, second := w.start(), w.start()
		before := assert.Value(first.Lock("a").TryLock(t.Context()))(t)
		w.recorder.Reset()
		ctx, caller := w.provider.Tracer("caller").Start(t.Context(), "work")
		time.AfterFunc(time.Minute, func() { _ = before.Release() })
		g := assert.Value(second.Lock("a").Lock(ctx, distlock.Why("nightly")))(t)
		time.Sleep(time.Hour)
		assert.Must(t, g.Release())
		caller.End()
		acquire := w.only("distlock acquire")
		if d := lasted(acquire); d < time.Minute || d > time.Minute+5*time.Second {
			t.Errorf("the acquisition lasted %v", d)
		}
		if len(acquire.Events()) != 1 || acquire.Events()[0].Name != "granted" {
			t.Errorf("its events are %v", acquire.Events())
		}
		for key, want := range map[string]string{
			"distlock.outcome": "granted", "distlock.lock.name": "a", "distlock.lock.why": "nightly",
			"distlock.lock.mode": "exclusive", "distlock.process": second.Process(),
			"distlock.lock.session": g.Session().Hex(), "distlock.cause": "",
		} {
			if got := attr(acquire.Attributes(), key); got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
		releases := w.take("distlock release")
		mine := releases[len(releases)-1]
		assert.Equal(t, attr(mine.Attributes(), "distlock.held"), "3600",
			"held for %q seconds, want %v")
		for _, s := range []sdk.ReadOnlySpan{acquire, mine} {
			if s.Parent().SpanID() != caller.SpanContext().SpanID() || s.Status().Code != codes.Unset {
				t.Errorf("%s is a child of %v, not of the caller; status %v", s.Name(), s.Parent(), s.Status())
			}
		}
	})
}

// If an acquisition fails, its span has the status Error. If another process holds the lock, the
// status of the span stays unset.
func TestTracer_Refused_IsAnErrorOnlyIfOneIs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *traced) {
		tracer := otel.New(otel.Options{Provider: w.provider})
		tracer.Observe(distlock.Event{Kind: distlock.EventRefused, At: time.Now(),
			Err: &distlock.HeldError{Name: "a"}})
		if s := w.only("distlock acquire"); s.Status().Code != codes.Unset ||
			attr(s.Attributes(), "distlock.cause") != "held" {
			t.Errorf("a held lock: %v, %v", s.Status(), s.Attributes())
		}
		w.recorder.Reset()
		err := errors.Join(errors.New("acquire"), distlock.ErrNoHeartbeat)
		tracer.Observe(distlock.Event{Kind: distlock.EventGaveUp, At: time.Now(), Waited: time.Second,
			Err: err})
		s := w.only("distlock acquire")
		if s.Status().Code != codes.Error || s.Status().Description != "no heartbeat" ||
			len(s.Events()) != 1 || lasted(s) != time.Second {
			t.Errorf("no heartbeat: %v, %v", s.Status(), s.Events())
		}
	})
}

// A takeover has its own span with the rule and the evidence, as a child of the acquisition.
func TestTracer_Takeover_IsASpanWithItsEvidence(t *testing.T) {
	inBubble(t, func(t *testing.T, w *traced) {
		tracer := otel.New(otel.Options{Provider: w.provider})
		tracer.Observe(distlock.Event{Kind: distlock.EventTakenOver, At: time.Now(),
			Waited: time.Minute, Name: "a", Previous: "host\xff:1", Rule: "watch",
			Evidence: "rule watch: ping unchanged"})
		acquire, takeover := w.only("distlock acquire"), w.only("distlock takeover")
		if takeover.Parent().SpanID() != acquire.SpanContext().SpanID() || lasted(takeover) != 0 {
			t.Errorf("the takeover is a child of %v and lasted %v", takeover.Parent(), lasted(takeover))
		}
		for key, want := range map[string]string{
			"distlock.takeover.rule": "watch", "distlock.takeover.evidence": "rule watch: ping unchanged",
			"distlock.previous_process": "host?:1", "distlock.lock.name": "a",
		} {
			if got := attr(takeover.Attributes(), key); got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
	})
}

// Every event except a ping has a span, and doc.go lists the spans and the attributes.
func TestTracer_EveryKind_EndsItsSpans_Documented(t *testing.T) {
	inBubble(t, func(t *testing.T, w *traced) {
		text := string(assert.Value(os.ReadFile("doc.go"))(t))
		tracer := otel.New(otel.Options{Provider: w.provider})
		for kind := distlock.EventAcquired; kind <= distlock.EventProcessOver; kind++ {
			if strings.HasPrefix(kind.String(), "EventKind") { // an unused value
				continue
			}
			w.recorder.Reset()
			tracer.Observe(distlock.Event{Kind: kind, At: time.Now(), Waited: 1, Held: 1, Name: "a",
				Why: "b", Mode: "shared", Session: bson.NewObjectID(), Fence: 1, Previous: "c",
				Rule: "watch", Evidence: "d"})
			ping := kind == distlock.EventPing || kind == distlock.EventPingFailed
			started, ended := len(w.recorder.Started()), w.recorder.Ended()
			if started != len(ended) || (started == 0) != ping {
				t.Errorf("%v: %d spans began, %d ended", kind, started, len(ended))
			}
			for _, s := range ended {
				for _, a := range s.Attributes() {
					if !strings.Contains(text, string(a.Key)) {
						t.Errorf("attribute %s is not documented", a.Key)
					}
				}
				if !strings.Contains(text, `"`+s.Name()+`"`) {
					t.Errorf("span %q is not documented", s.Name())
				}
			}
		}
	})
}
