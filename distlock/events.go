package distlock

import (
	"context"
	"errors"
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
	"mongodlm/internal/metrics"
	"mongodlm/pinger"
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
	b.tell(Event{
		Kind: EventReleasedLate, Name: s.Name, Process: b.process(), Session: s.TS, Fence: b.late(s.TS),
	})
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
		Session: dead.TS, Fence: dead.Fence, Previous: dead.Process,
		Rule: dead.Rule(), Evidence: evidence,
	})
}

// An Observer is told what happens to the locks of a Manager, for metrics, spans and histories. One
// that also has a method ObserveContext(context.Context, Event) is told by that instead, with the
// context of the call that acquires, or acquired, the lock.
//
// Observe is called by what acquires or releases, or by the heartbeat, several at a time: it must
// return at once, since a slow one makes pings late, and must not call the Manager or its guards. A
// panic in it is recovered.
//
// Of one lock session the acquisition is told first, once; then a loss, if any; then the release,
// or that the guard was dropped. A guard that was lost before the caller got it is told as a failed
// acquisition. No events: of a call refused for its name, options or context, of a release that is
// not the last one, of [TryGuard.Reenter] and [DistributedLock.LockInTransaction].
type Observer interface {
	Observe(e Event)
}

// A contextObserver is an Observer that wants the context, too.
type contextObserver interface {
	ObserveContext(ctx context.Context, e Event)
}

// Observers returns an Observer that tells all of them in turn; nil of none.
func Observers(all ...Observer) Observer {
	var list observers
	for _, o := range all {
		switch o := o.(type) {
		case nil:
		case observers:
			list = append(list, o...)
		default:
			list = append(list, o)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// observers are several. A Manager asks each of them for itself, so that one which panics does not
// keep an event from the others.
type observers []Observer

// Observe implements [Observer].
func (all observers) Observe(e Event) {
	for _, o := range all {
		o.Observe(e)
	}
}

// Sampled is told by those who run functions under locks, see package metrics.
func (all observers) Sampled(samples ...metrics.Sample) {
	for _, o := range all {
		metrics.Of(o).Sampled(samples...)
	}
}

// Asks is given what is asked when somebody reads the metrics.
func (all observers) Asks(ask func(context.Context) []metrics.Sample) (stop func()) {
	var stops []func()
	for _, o := range all {
		stops = append(stops, metrics.Of(o).Asks(ask))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// An EventKind says what happened.
type EventKind int

// What happens to a lock, and the fields that say more.
const (
	EventAcquired  EventKind = iota + 1 // at once; Waited
	EventGranted                        // in its turn; Waited, Evidence after a break
	EventTakenOver                      // from the dead; Waited, Rule, Evidence, Previous if known
	EventRefused                        // a try ended without the lock; Waited, Err
	EventGaveUp                         // a call that waits ended without it; Waited, Err
	EventReleased                       // by the caller or by Close; Held, Waited, Err of Release
	// EventReleasedLate: by the background, after a failed release, an unknown outcome or a drop.
	EventReleasedLate
	EventLost    // Held, Err; EventReleased follows when the caller releases it
	EventDropped // the garbage collector found a guard that was never released; Held
	EventBroken  // by an operator, whose is Why; Session, Fence and Mode are those of Previous
	EventEvicted // Previous, a dead one of several, was taken out; Rule, Evidence; Fence 0 of a waiter
)

// What happens to a process; Name is empty.
const (
	EventCondemned   EventKind = iota + 100 // this process declared Previous dead; Rule, Evidence
	EventPing                               // a ping was acknowledged; Waited, Late, Skew
	EventPingFailed                         // a ping was not; Waited, Late, Err
	EventProcessOver                        // condemned, or a twin was found: it takes a new id; Err
)

// String returns the words of the log for it.
func (k EventKind) String() string {
	if text, ok := eventWords[k]; ok {
		return text
	}
	return fmt.Sprintf("EventKind(%d)", int(k))
}

var eventWords = map[EventKind]string{
	EventAcquired: "acquired", EventGranted: "granted", EventTakenOver: "taken over",
	EventRefused: "refused", EventGaveUp: "gave up", EventReleased: "released",
	EventReleasedLate: "released late", EventLost: "lost", EventDropped: "dropped",
	EventBroken:  "broken",
	EventEvicted: "evicted", EventCondemned: "condemned", EventPing: "ping",
	EventPingFailed: "ping failed", EventProcessOver: "process over",
}

// An Event is one thing that happened; its kind says which fields are set. Texts are as the
// documents have them: escape them.
type Event struct {
	Kind     EventKind
	At       time.Time     // when it was over, by this machine's clock
	Name     string        // of the lock
	Why      string        // the reason that the holder, contender or operator gave
	Label    string        // the option of the holder; "election" of a leader; "" without a guard
	Mode     string        // "exclusive", "shared" or "permit"
	Process  string        // the guard's, else the Manager's; host:number of an Inspector without one
	Session  bson.ObjectID // the field ts
	Fence    int64         // 0 where there is none
	Waited   time.Duration // how long the call, the release or the ping took, by the monotonic clock
	Held     time.Duration // how long the guard was held
	Late     time.Duration // by how much the heartbeat was late
	Skew     time.Duration // of a ping: by how much the server's clock was ahead of At
	Previous string        // the process id of who was overtaken, broken, evicted or condemned
	Rule     string        // "watch", "witnesses", "condemned", "lease"; "silent" of an evicted waiter
	Evidence string        // the figures that it was decided on, in words
	Err      error
}

// The words for the end of a context.
const canceled, closed = "canceled", "closed"

// causes are the words of [Event.Cause]. An error may match several: the first counts.
var causes = []struct {
	err  error
	word string
}{
	{ErrDeadlock, "deadlock"},
	{ErrPermitMismatch, "permits"},
	{ErrNoHeartbeat, "no heartbeat"},
	{ErrOutcomeUnknown, "unknown"},
	{ErrMalformed, "malformed"},
	{pinger.ErrCondemned, "condemned"},
	{pinger.ErrForked, "ping changed"},
	{pinger.ErrLapsed, "no ping"},
	{ErrLeaseExpired, "lease"},
	{errDocumentGone, "removed"},
	{ErrLockLost, "taken"},
	{ErrUnavailable, "unavailable"},
	{ErrClosed, closed},
	{context.Canceled, canceled},
	{context.DeadlineExceeded, canceled},
	{errTimeUp, canceled},
	{ErrHeld, "held"},
}

// Cause returns what Err is in one word, for a label; "" when it is nil.
//
//   - of an acquisition: "held", "permits", "deadlock", "canceled" (its context ended), "no
//     heartbeat"
//   - of a guard: "no ping" (none was acknowledged in time), "condemned", "ping changed" (by a
//     twin, or by hand), "lease", "taken" (another has the lock), "removed"
//   - of any command: "unavailable", "unknown" (its outcome), "denied" (a privilege), "malformed",
//     "closed", "other"
func (e Event) Cause() string {
	if e.Err == nil {
		return ""
	}
	for _, c := range causes {
		if errors.Is(e.Err, c.err) {
			return c.word
		}
	}
	var denied *PrivilegeError
	if errors.As(e.Err, &denied) {
		return "denied"
	}
	return "other"
}

// saysNothing reports whether an error of an acquisition says of neither the lock nor the server
// anything, but only that the context of a command ended, in whatever words the store has for that.
func saysNothing(err error) bool {
	cause := Event{Err: err}.Cause()
	return (cause == canceled || cause == closed) && !errors.Is(err, ErrHeld)
}
