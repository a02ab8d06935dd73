package distlock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
)

// An Observer is told what happens to the locks of a Manager, where it happens: metrics, spans and
// histories are made of that. Set it in [Config].Observer.
//
// Observe is called synchronously, by the caller that acquires or releases or by the heartbeat, several at
// a time. It must return at once, for what it waits for is waited for by them, and a slow one makes pings
// late; and it must not call the Manager or its guards. What panics in it is recovered and logged, once for
// a Manager: no lock breaks by it. A Manager without an Observer and a history makes no events.
//
// Of one lock session an acquisition is told first, once; then a loss, if there is one; then its release, or that it
// was dropped. A guard that nobody ever got, since it was lost or the Manager closed while it was made, is told as an
// acquisition that failed. No events: of a call whose name, options or context were refused before anything was sent;
// of [TryGuard.Reenter], and of a release that is not the last one; of [DistributedLock.LockInTransaction], since
// whether it held the lock the commit says, but of the dead that it takes out of the way.
type Observer interface {
	Observe(e Event)
}

// A ContextObserver is an Observer that is given a context with each event, as the parent of a span is
// found by: ObserveContext is called in place of Observe. It is the context of the call that acquires, or
// that acquired the lock which the event is about; it may have ended. For what the background does it is
// an empty one.
type ContextObserver interface {
	Observer
	ObserveContext(ctx context.Context, e Event)
}

// Observers returns an Observer that tells all of them, each in its turn. Nil ones are left out; of none it
// is nil.
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

// observers are several. A Manager asks each of them for itself, so that one which panics does not keep an
// event from the others.
type observers []Observer

// Observe implements [Observer].
func (all observers) Observe(e Event) {
	for _, o := range all {
		o.Observe(e)
	}
}

// An EventKind says what happened.
type EventKind int

// What happens to a lock, as this process sees it.
const (
	// EventAcquired: a lock was to be had at once. Waited is how long that took.
	EventAcquired EventKind = iota + 1
	// EventGranted: a lock was acquired in its turn, out of the line. Waited. Evidence says so when an
	// operator broke the lock of the one before.
	EventGranted
	// EventTakenOver: a lock was acquired from a dead holder, or in its turn after a dead one was taken out.
	// Waited, Rule, Evidence, and Previous where this process took it itself.
	EventTakenOver
	// EventRefused: a try ended without the lock. Err says why, Waited how long that took. No guard, so
	// Session and Fence are empty, as in the next.
	EventRefused
	// EventGaveUp: a call that waits ended without the lock. Err, Waited.
	EventGaveUp
	// EventReleased: a guard was released by its caller or by Close. Held; Waited is how long the release
	// took. Err is what the release returned: nil when the lock was freed while it was trusted.
	EventReleased
	// EventReleasedLate: the background took a session out of its lock, or found it out, whose release had failed,
	// whose acquisition had an unknown outcome, or whose guard was dropped.
	EventReleasedLate
	// EventLost: a guard is trusted no more although it was not released. Held, Err; an Err that matches
	// [ErrLeaseExpired] says that its lease ran out. EventReleased follows when the caller releases it.
	EventLost
	// EventDropped: the garbage collector found a guard that was never released. Held.
	EventDropped
	// EventBroken: an operator broke the lock of Previous by this process. Why is the operator's; Session, Fence
	// and Mode are those of Previous.
	EventBroken
	// EventEvicted: this process took Previous, a dead holder, or with no Fence a dead waiter, out of a lock
	// in which others stand. Rule, Evidence. Who is granted the lock by it has an event of his own.
	EventEvicted
)

// What happens to a process. Name is empty.
const (
	// EventCondemned: this process declared Previous dead. Rule, Evidence.
	EventCondemned EventKind = iota + 100
	// EventPing: a ping was acknowledged. Waited is how long that took, Late by how much the heartbeat was
	// late with it.
	EventPing
	// EventPingFailed: a ping was not acknowledged. Waited, Late, Err.
	EventPingFailed
	// EventProcessOver: the process gave its id up for a new one: it was condemned, or found a twin. Err.
	EventProcessOver
)

// String returns the words of the log for it, where the log tells of it.
func (k EventKind) String() string {
	if text, ok := eventWords[k]; ok {
		return text
	}
	return fmt.Sprintf("EventKind(%d)", int(k))
}

var eventWords = map[EventKind]string{
	EventAcquired: "acquired", EventGranted: "granted", EventTakenOver: "taken over",
	EventRefused: "refused", EventGaveUp: "gave up", EventReleased: "released",
	EventReleasedLate: "released late", EventLost: "lost", EventDropped: "dropped", EventBroken: "broken",
	EventEvicted: "evicted", EventCondemned: "condemned", EventPing: "ping",
	EventPingFailed: "ping failed", EventProcessOver: "session over",
}

// An Event is one thing that happened. Which fields are set its kind says. Texts are as the callers and the
// documents have them: escape them before showing them.
type Event struct {
	Kind EventKind
	At   time.Time // when it was over, by this machine's clock
	Name string    // of the lock
	Why  string    // the reason that the holder, contender or operator gave
	// Label is the option Label of who acquired the lock, "main" without one, and "election" where it leads; empty
	// where the event is of no guard.
	Label string
	Mode  string // "exclusive", "shared" or "permit"
	// Process is the process id of this Manager, or that of the guard where that is an older one; empty for
	// an Inspector of its own.
	Process string
	// Session is the lock session, the field ts. Fence is 0 where there is none.
	Session bson.ObjectID
	Fence   int64
	// Waited is for how long the call, the release or the ping went on that is over now; Held for how long
	// the guard was held; Late by how much the heartbeat was late. By this process's monotonic clock.
	Waited, Held, Late time.Duration
	// Previous is the process id of the other one: who was overtaken, broken, evicted or condemned.
	Previous string
	// Rule names the takeover rule: "watch", "witnesses", "at once" or "condemned"; "silent" for a waiter that was passed over; "lease" when it decided
	// on the lease of the holder and not on its process; "" when there was none.
	Rule     string
	Evidence string // the figures it decided on, in words
	Err      error
}

// An emitter is where every event passes.
type emitter struct {
	clock     clock.Clock
	log       zerolog.Logger
	observers []Observer
	panicked  atomic.Bool // one was recovered, and logged
}

func newEmitter(o Observer, c clock.Clock, log zerolog.Logger) *emitter {
	all, _ := Observers(o).(observers)
	return &emitter{clock: c, log: log, observers: all}
}

// on reports whether there is anybody to tell. What an event is made of is gathered only then.
func (e *emitter) on() bool { return len(e.observers) > 0 }

// start is the time from which an event's Waited or Held will be counted.
func (e *emitter) start() time.Duration {
	if !e.on() {
		return 0
	}
	return e.clock.Now().Mono
}

// emit tells all observers of an event that began at start.
func (e *emitter) emit(ctx context.Context, event Event) {
	event.At = e.clock.Now().Wall
	for _, o := range e.observers {
		e.tell(ctx, o, event)
	}
}

func (e *emitter) tell(ctx context.Context, o Observer, event Event) {
	defer func() {
		r := recover()
		if r == nil || e.panicked.Swap(true) {
			return
		}
		defer func() { _ = recover() }() // nor may a logger that panics break a lock
		e.log.Error().Stringer("event", event.Kind).Str("panic", catalog.Printable(fmt.Sprint(r), 400)).
			Msg("an observer panicked")
	}()
	if c, ok := o.(ContextObserver); ok {
		c.ObserveContext(ctx, event)
		return
	}
	o.Observe(event)
}

// since returns how long ago start was.
func (e *emitter) since(start time.Duration) time.Duration { return e.clock.Now().Mono - start }
