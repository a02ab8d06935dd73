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

type emitter struct {
	clock     clock.Clock
	log       zerolog.Logger
	observers []Observer
	panicked  atomic.Bool // a panic was recovered and logged
}

// newEmitter returns nil if there are no observers. Then the Manager builds no events.
func newEmitter(o Observer, c clock.Clock, log zerolog.Logger) *emitter {
	all, _ := Observers(o).(observers)
	if len(all) == 0 {
		return nil
	}
	return &emitter{clock: c, log: log, observers: all}
}

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

// brokenWord is the prefix of the evidence of a grant that follows a break.
const brokenWord = "broken: "

// ruleOf returns the rule from evidence of the form "rule <rule>: <text>", or "".
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

// subjectOf returns the id of the dead process from the evidence. If the evidence does not contain
// the full id, subjectOf returns "".
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

// background emits the events of the pinger and of package watch. It implements
// [pinger.Told] and [watch.Events].
type background struct {
	*emitter
	process func() string
	skew    func() time.Duration
	late    func(ts bson.ObjectID) (fence int64) // fence of a guard whose release failed; else 0
}

func (b *background) report(e Event) { b.emit(context.Background(), e) }

func (b *background) Pinged(process string, took, late time.Duration, err error) {
	kind := EventPing
	if err != nil {
		kind = EventPingFailed
	}
	b.report(Event{Kind: kind, Process: process, Waited: took, Late: late, Skew: b.skew(), Err: err})
}

func (b *background) Over(process string, cause error) {
	b.report(Event{Kind: EventProcessOver, Process: process, Err: cause})
}

func (b *background) ReleasedLate(s catalog.Session) {
	b.report(Event{
		Kind: EventReleasedLate, Name: s.Name, Process: b.process(), Session: s.TS, Fence: b.late(s.TS),
	})
}

func (b *background) Condemned(process, rule, evidence string) {
	b.report(Event{
		Kind: EventCondemned, Process: b.process(), Previous: process, Rule: rule, Evidence: evidence,
	})
}

func (b *background) Evicted(lock string, dead watch.Suspect, evidence string) {
	b.report(Event{
		Kind: EventEvicted, Name: lock, Why: dead.Why, Mode: modeWord(dead.Mode), Process: b.process(),
		Session: dead.TS, Fence: dead.Fence, Previous: dead.Process,
		Rule: dead.Rule(), Evidence: evidence,
	})
}

// An Observer receives the events of a Manager, for metrics, spans and histories. If it has a
// method ObserveContext(context.Context, Event), the Manager calls that method instead. For an
// event of an acquisition or a guard, the context derives from the context of the acquisition.
// Several goroutines call Observe at the same time. Observe must return fast, because it can delay
// pings, and must not call the Manager or its guards. The Manager recovers from its panics.
//
// The events of a session are its acquisition, then its loss, if any, then its release or drop. The
// loss of a guard before the caller gets it is a failed acquisition. These have no events:
// [TryGuard.Reenter], the release of a guard while another of the same acquisition remains,
// [DistributedLock.LockInTransaction], and calls with bad arguments.
type Observer interface {
	Observe(e Event)
}

type contextObserver interface {
	ObserveContext(ctx context.Context, e Event)
}

// Observers returns an Observer that calls all in order, or nil without any.
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

// observers holds several Observers. A Manager calls each Observer separately. So if one panics,
// the others still receive the event.
type observers []Observer

func (all observers) Observe(e Event) {
	for _, o := range all {
		o.Observe(e)
	}
}

// Sampled implements [metrics.Observer].
func (all observers) Sampled(samples ...metrics.Sample) {
	for _, o := range all {
		metrics.Of(o).Sampled(samples...)
	}
}

// Asks implements [metrics.Observer].
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

// Events of a lock, each with a description and the fields that are set.
const (
	EventAcquired     EventKind = iota + 1 // acquired without waiting; Waited
	EventGranted                           // granted from the queue; Waited, Evidence after a break
	EventTakenOver                         // from a dead holder; Waited, Rule, Evidence, Previous if known
	EventRefused                           // one try failed; Waited, Err
	EventGaveUp                            // a call that waited failed; Waited, Err
	EventReleased                          // by the caller or by Close; Held, Waited, Err of Release
	EventReleasedLate                      // in the background, after a failure or a drop
	EventLost                              // the guard is lost; EventReleased follows; Held, Err
	EventDropped                           // an unreleased guard became unreachable; Held
	EventBroken                            // by an operator; Why; Session, Fence and Mode of Previous
	EventEvicted                           // of Previous; Rule, Evidence; Fence 0 for a waiter
)

// Events of a process. Their Name is empty.
const (
	EventCondemned   EventKind = iota + 100 // this process declared Previous dead; Rule, Evidence
	EventPing                               // a ping was acknowledged; Waited, Late, Skew
	EventPingFailed                         // a ping failed; Waited, Late, Err
	EventProcessOver                        // the process gave up its process id; Err
)

// String returns the word that the log uses for the kind.
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

// An Event is one event. Its Kind determines which fields are set. Escape its texts before display.
type Event struct {
	Kind     EventKind
	At       time.Time     // time of the event, by this machine's clock
	Name     string        // name of the lock
	Why      string        // the reason that the holder, contender or operator gave
	Label    string        // the holder's Label option; "election" for a leader; "" without a guard
	Mode     string        // "exclusive", "shared" or "permit"
	Process  string        // of the guard, else of the Manager; host:pid for a separate Inspector
	Session  bson.ObjectID // the field ts
	Fence    int64         // 0 without a fence
	Waited   time.Duration // duration of the call, the release or the ping, by the monotonic clock
	Held     time.Duration // time from the acquisition to the event
	Late     time.Duration // delay of the heartbeat
	Skew     time.Duration // of a ping: the lead of the server's clock over this machine's
	Previous string        // the process that was taken over, broken, evicted or condemned
	Rule     string        // "watch", "witnesses", "condemned", "lease"; for a waiter also "silent"
	Evidence string        // the figures behind the decision, in words
	Err      error
}

const canceled, closed = "canceled", "closed"

// causes lists the words of [Event.Cause]. If an error matches several entries, the first one
// counts.
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

// Cause returns the kind of Err as a short label, or "" if Err is nil:
//   - of a failed acquisition: "held", "permits", "deadlock", "canceled" (its context ended), "no
//     heartbeat"
//   - of a lost guard: "no ping" (none was acknowledged in time), "condemned", "ping changed" (by a
//     twin or an operator), "lease", "taken" (by another process), "removed"
//   - of any failed command: "unavailable", "unknown" (the outcome), "denied" (a privilege is
//     missing), "malformed", "closed", "other"
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

// endOfContext reports whether an acquisition failed only because its context ended or the Manager
// was closed. The error then contains no information about the lock or the server.
func endOfContext(err error) bool {
	cause := Event{Err: err}.Cause()
	return (cause == canceled || cause == closed) && !errors.Is(err, ErrHeld)
}
