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
	"mongodlm/internal/metrics"
	"mongodlm/internal/watch"
	"mongodlm/pinger"
)

// An emitter passes every event to the observers.
type emitter struct {
	clock     clock.Clock
	log       zerolog.Logger
	observers []Observer
	panicked  atomic.Bool // a panic was recovered and logged
}

// newEmitter returns nil without observers, so that events are built only for observers.
func newEmitter(o Observer, c clock.Clock, log zerolog.Logger) *emitter {
	all, _ := Observers(o).(observers)
	if len(all) == 0 {
		return nil
	}
	return &emitter{clock: c, log: log, observers: all}
}

// emit sets the time of an event and passes it to all observers.
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
		defer func() { _ = recover() }() // a logger that panics must not break a lock
		e.log.Error().Stringer("event", event.Kind).Str("panic", catalog.Printable(fmt.Sprint(r), 400)).
			Msg("an observer panicked")
	}()
	if c, ok := o.(contextObserver); ok {
		c.ObserveContext(ctx, event)
		return
	}
	o.Observe(event)
}

// brokenWord begins the evidence of a grant that follows a break.
const brokenWord = "broken: "

// ruleOf returns the rule in evidence of package watch; "" without one.
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

// subjectOf returns the dead process in evidence of packages watch and takeover; "" if the
// evidence does not name it in full.
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

// A background emits the events of the heartbeat and of the judge.
type background struct {
	*emitter
	process func() string
	skew    func() time.Duration
	late    func(ts bson.ObjectID) (fence int64) // of a guard whose release failed; else 0
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

// Condemned implements [watch.Events].
func (b *background) Condemned(process, rule, evidence string) {
	b.tell(Event{
		Kind: EventCondemned, Process: b.process(), Previous: process, Rule: rule, Evidence: evidence,
	})
}

// Evicted implements [watch.Events].
func (b *background) Evicted(lock string, dead watch.Suspect, evidence string) {
	b.tell(Event{
		Kind: EventEvicted, Name: lock, Why: dead.Why, Mode: modeWord(dead.Mode), Process: b.process(),
		Session: dead.TS, Fence: dead.Fence, Previous: dead.Process,
		Rule: dead.Rule(), Evidence: evidence,
	})
}

// An Observer receives the events of a Manager, for metrics, spans and histories. If it has a
// method ObserveContext(context.Context, Event), that is called instead of Observe, with the
// context of the call that acquires, or acquired, the lock.
//
// The calls that acquire or release call Observe, and so does the heartbeat, several at a time: it
// must return fast, since a slow one delays pings, and must not call the Manager or its guards. A
// panic in it is recovered.
//
// The first event of a lock session is its acquisition; then a loss, if any; then the release, or
// that the guard was dropped. A guard that was lost before the caller got it is a failed
// acquisition. There are no events for a call that is refused for its name, options or context, for
// a release that is not the last one, for [TryGuard.Reenter] and for
// [DistributedLock.LockInTransaction].
type Observer interface {
	Observe(e Event)
}

// A contextObserver is an Observer that receives the context, too.
type contextObserver interface {
	ObserveContext(ctx context.Context, e Event)
}

// Observers returns an Observer that calls all in order; nil without any.
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

// observers are several Observers. A Manager calls each of them itself, so that one that panics
// does not keep an event from the rest.
type observers []Observer

// Observe implements [Observer].
func (all observers) Observe(e Event) {
	for _, o := range all {
		o.Observe(e)
	}
}

// Sampled receives the samples of elections, loops and queues, see package metrics.
func (all observers) Sampled(samples ...metrics.Sample) {
	for _, o := range all {
		metrics.Of(o).Sampled(samples...)
	}
}

// Asks adds a function that returns samples when the metrics are read.
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

// An EventKind is the kind of an event.
type EventKind int

// Events of a lock, and the fields that they set.
const (
	EventAcquired  EventKind = iota + 1 // without waiting; Waited
	EventGranted                        // from the queue; Waited, Evidence after a break
	EventTakenOver                      // from a dead holder; Waited, Rule, Evidence, Previous if known
	EventRefused                        // a try without the lock; Waited, Err
	EventGaveUp                         // a wait without the lock; Waited, Err
	EventReleased                       // by the caller or by Close; Held, Waited, Err of Release
	// EventReleasedLate: by the background, after a failed release, an unknown outcome or a drop.
	EventReleasedLate
	EventLost    // Held, Err; EventReleased follows when the caller releases it
	EventDropped // the garbage collector found a guard that was never released; Held
	EventBroken  // by an operator, who gave Why; Session, Fence and Mode of Previous
	EventEvicted // Previous, a dead one of several, was removed; Rule, Evidence; Fence 0 of a waiter
)

// Events of a process; Name is empty.
const (
	EventCondemned   EventKind = iota + 100 // this process declared Previous dead; Rule, Evidence
	EventPing                               // a ping was acknowledged; Waited, Late, Skew
	EventPingFailed                         // a ping failed; Waited, Late, Err
	EventProcessOver                        // condemned, or a twin was found: it takes a new id; Err
)

// String returns the words of the log for the kind.
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

// An Event is one event; its kind determines the fields that are set. Texts are as stored: escape
// them.
type Event struct {
	Kind     EventKind
	At       time.Time     // of its end, by this machine's clock
	Name     string        // of the lock
	Why      string        // the reason that the holder, contender or operator gave
	Label    string        // the option of the holder; "election" of a leader; "" without a guard
	Mode     string        // "exclusive", "shared" or "permit"
	Process  string        // the guard's, else the Manager's; host:number of an Inspector without one
	Session  bson.ObjectID // the field ts
	Fence    int64         // 0 without one
	Waited   time.Duration // duration of the call, the release or the ping, by the monotonic clock
	Held     time.Duration // the time for which the guard was held
	Late     time.Duration // the delay of the heartbeat
	Skew     time.Duration // of a ping: the lead of the server's clock over At
	Previous string        // the process that was overtaken, broken, evicted or condemned
	Rule     string        // "watch", "witnesses", "condemned", "lease"; "silent" of an evicted waiter
	Evidence string        // the figures behind the decision, in words
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

// Cause returns the kind of Err in one word, for a label; "" without an error.
//
//   - of an acquisition: "held", "permits", "deadlock", "canceled" (the end of its context), "no
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

// endOfContext reports whether an error of an acquisition is only the end of the context of a
// command, in any wording of the store, and does not concern the lock or the server.
func endOfContext(err error) bool {
	cause := Event{Err: err}.Cause()
	return (cause == canceled || cause == closed) && !errors.Is(err, ErrHeld)
}
