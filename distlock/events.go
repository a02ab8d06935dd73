package distlock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/contend"
)

// An emitter is where every event passes.
type emitter struct {
	clock     clock.Clock
	log       zerolog.Logger
	observers []Observer
	panicked  atomic.Bool // one was recovered, and logged
}

// newEmitter returns nil when nobody observes: what an event is made of is gathered only for
// somebody.
func newEmitter(o Observer, c clock.Clock, log zerolog.Logger) *emitter {
	all, _ := Observers(o).(observers)
	if len(all) == 0 {
		return nil
	}
	return &emitter{clock: c, log: log, observers: all}
}

// emit tells all observers of an event that began at start.
func (e *emitter) emit(ctx context.Context, event Event) {
	event.At = e.clock.Now().Wall
	for _, o := range e.observers {
		e.one(ctx, o, event)
	}
}

func (e *emitter) one(ctx context.Context, o Observer, event Event) {
	defer func() {
		r := recover()
		if r == nil || e.panicked.Swap(true) {
			return
		}
		defer func() { _ = recover() }() // nor may a logger that panics break a lock
		e.log.Error().Stringer("event", event.Kind).Str("panic", catalog.Printable(fmt.Sprint(r), 400)).
			Msg("an observer panicked")
	}()
	if c, ok := o.(contextObserver); ok {
		c.ObserveContext(ctx, event)
		return
	}
	o.Observe(event)
}

// brokenWord begins the evidence of a grant that an operator's break brought about.
const brokenWord = "broken: "

// ruleOf reads the rule out of evidence as package contend words it; "" when there is none.
func ruleOf(evidence string) string {
	rest, ok := strings.CutPrefix(evidence, "rule ")
	rule, _, found := strings.Cut(rest, ": ")
	if !ok || !found {
		return ""
	}
	switch rule {
	case "watch", "witnesses", "at once", "condemned", "lease", "silent":
		return rule
	}
	return ""
}

// subjectOf reads out of evidence, as packages contend and takeover word it, whose death it is of;
// "" where that is not told whole.
func subjectOf(evidence string) string {
	at := strings.IndexByte(evidence, '"')
	if at < 0 || !strings.HasSuffix(evidence[:at], " of ") && !strings.HasSuffix(evidence[:at], ": ") {
		return ""
	}
	quoted, _ := strconv.QuotedPrefix(evidence[at:])
	process, err := strconv.Unquote(quoted)
	if err != nil || strings.HasSuffix(process, "...") {
		return ""
	}
	return process
}

// A background tells of what the heartbeat and the judge do.
type background struct {
	*emitter
	process func() string
	skew    func() time.Duration
	late    func(ts bson.ObjectID) (fence int64) // of a guard whose release had failed; else 0
}

func (b *background) tell(e Event) { b.emit(context.Background(), e) }

// Pinged implements [pinger.Told].
func (b *background) Pinged(process string, took, late time.Duration, err error) {
	kind := EventPing
	if err != nil {
		kind = EventPingFailed
	}
	b.tell(Event{Kind: kind, Process: process, Waited: took, Late: late, Skew: b.skew(), Err: err})
}

// Over implements [pinger.Told].
func (b *background) Over(process string, cause error) {
	b.tell(Event{Kind: EventProcessOver, Process: process, Err: cause})
}

// ReleasedLate implements [pinger.Told].
func (b *background) ReleasedLate(s catalog.Session) {
	b.tell(Event{Kind: EventReleasedLate, Name: s.Name, Process: b.process(), Session: s.TS, Fence: b.late(s.TS)})
}

// Condemned implements [contend.Told].
func (b *background) Condemned(process, rule, evidence string) {
	b.tell(Event{
		Kind: EventCondemned, Process: b.process(), Previous: process, Rule: rule, Evidence: evidence,
	})
}

// Evicted implements [contend.Told].
func (b *background) Evicted(lock string, dead contend.Judged, evidence string) {
	b.tell(Event{
		Kind: EventEvicted, Name: lock, Why: dead.Why, Mode: modeWord(dead.Mode), Process: b.process(),
		Session: dead.TS, Fence: dead.Fence, Previous: dead.Process, Rule: dead.Rule(), Evidence: evidence,
	})
}
