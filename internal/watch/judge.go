package watch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/takeover"
)

// A Judge looks at the locks that a process cannot have, decides by the takeover rule which of
// those in the way are dead, and takes them out. It knows nothing of who waits.
type Judge struct {
	Store   Store
	Clock   clock.Clock
	Policy  takeover.Policy
	Process Process
	Log     zerolog.Logger
	// Told is told of what was done; nil tells nobody.
	Told Told
	// Granted is told at once what the next in line were granted by an eviction.
	Granted func([]catalog.Grant)

	// Steady tells since when the own pings are acknowledged without a failure; with nil nobody is
	// passed over.
	Steady func() (since time.Duration, ok bool)
	// Interval is the time between two looks at the silent that nobody asks for now. Go starts a
	// goroutine that ends soon after Closed is closed; with nil there are no such looks.
	Interval time.Duration
	Go       func(func())
	Closed   <-chan struct{}

	seen  observations
	vigil vigil
}

// Told is told, by the goroutine that did it, of a process that was condemned, and of a holder or
// waiter that was taken out of a lock. It must not block.
type Told interface {
	Condemned(process, rule, evidence string)
	Evicted(lock string, dead Judged, evidence string)
}

// Store is what a Judge needs of a [catalog.Catalog].
type Store interface {
	Snapshots(ctx context.Context, names []string) (map[string]catalog.Snapshot, error)
	Read(ctx context.Context, name string) (catalog.Lock, error)
	Hello(ctx context.Context) (catalog.Server, error)
	ApplyPing(ctx context.Context, c catalog.PingChange) error
	Apply(ctx context.Context, t catalog.Transition) (catalog.Lock, []catalog.Grant, error)
}

// Process is what a Judge needs of the process that it works for; a *pinger.LockPinger is one.
type Process interface {
	// Process returns the process id.
	Process() string
	// Server returns what is known of the server, SetServer notes what it has just said of itself.
	Server() catalog.Server
	SetServer(catalog.Server)
}

// Look reads a lock and judges it, and leaves what it saw of the silent.
func (j *Judge) Look(ctx context.Context, name string) (Scene, error) {
	sent := j.Clock.Now() // R2: before the look is sent
	seen, err := catalog.LookAt(ctx, j.Store, name)
	if err != nil {
		return Scene{}, err
	}
	s := j.Decide(name, seen, sent, j.Clock.Now()) // R1: after the reply
	j.LeaveSights(ctx, s)
	return s, nil
}

// Decide adds a look to the observations of the processes that it shows, and decides on each.
func (j *Judge) Decide(name string, seen catalog.Snapshot, sent, received clock.Reading) Scene {
	if seen.Primary == "" {
		seen.Primary = j.Process.Server().Primary
	}
	s := Scene{Snapshot: seen, Name: name}
	defer func() { j.looked(&s, sent, received) }()
	if seen.Lock == nil {
		return s
	}
	holders := seen.Lock.Holders()
	parties := slices.Concat(holders, seen.Lock.Waiters)
	s.Judged = make([]Judged, 0, len(parties))
	judged := map[likeness]Judged{}
	for i, p := range parties {
		like, waits := likeness{p.Process, p.Takeover}, i >= len(holders)
		one, known := judged[like]
		if !known || one.Evidence.Subject().Lock != "" {
			one = Judged{PingState: seen.Pings[p.Process]}
			e := TraceOf(p, one.PingState)
			e.Name, e.Server, e.Primary = name, seen.ServerTime, seen.Primary
			e.Wall, e.Sent, e.Received = received.Wall, sent.Mono, received.Mono
			if e.Sight.By == j.Process.Process() {
				e.Sight = takeover.Sight{} // the own watch tells more
			}
			if e.Subject().Lock == "" { // the next session of a crowd does not restart its watch
				e.TS = bson.NilObjectID
			}
			one.Decision = j.seen.look(&e, j.Policy)
			one.Evidence = e
			judged[like] = one
		}
		one.Participant, one.Waits = p, waits
		lease, ok := seen.Lock.LeaseOf(p.TS)
		if ok && !waits && !one.Dead() && one.PingState.Err == nil {
			j.judgeLease(&one, name, seen, lease, sent, received)
		}
		s.Judged = append(s.Judged, one)
	}
	return s
}

// A likeness is what makes two parties of one look one case: the safety of a takeover hangs on the
// ping of the process.
type likeness struct {
	process  string
	takeover time.Duration
}

// judgeLease judges a holder that lives as far as its ping tells by its lease: it may be dead by
// that. One whose ping cannot be understood is left alone, as everywhere: a version that writes
// another ping may mean another thing by its lease.
func (j *Judge) judgeLease(one *Judged, name string, seen catalog.Snapshot, lease catalog.Lease,
	sent, received clock.Reading) {
	e := takeover.Evidence{
		Name: name, Held: true, Process: one.Process, TS: one.TS, Lease: true,
		HasPing: true, Ping: lease.At, Local: lease.Local, Seq: lease.Number, HasSeq: true,
		PingTakeover: lease.Life,
		Server:       seen.ServerTime, Primary: seen.Primary,
		Wall: received.Wall, Sent: sent.Mono, Received: received.Mono,
	}
	d := j.seen.look(&e, j.Policy.OfLease(lease.Life))
	switch {
	case d.Verdict == takeover.Take:
		one.Evidence, one.Decision, one.Renewal = e, d, lease.Number
	case one.Decision.Remaining <= 0 || d.Remaining < one.Decision.Remaining:
		one.Decision.Remaining = d.Remaining // to look again by then
		one.Decision.Reason += "; " + d.Reason
	}
}

// TraceOf is what a holder or waiter has left in the documents.
func TraceOf(party catalog.Participant, pulse catalog.PingState) takeover.Evidence {
	e := takeover.Evidence{
		Held: true, Process: party.Process, TS: party.TS, Recorded: party.Takeover,
	}
	if pulse.Err != nil {
		e.Malformed = pulse.Err.Error()
	}
	if p := pulse.Ping; p != nil {
		e.HasPing, e.Ping, e.Local = true, p.At, p.Local
		e.Seq, e.HasSeq = p.Seq, p.HasSeq
		e.PingInterval, e.PingTakeover = p.Interval, p.Takeover
		seen := p.Sight
		e.Sight = takeover.Sight{Seq: seen.Seq, Server: seen.At, Local: seen.Local, By: seen.By}
		// A mark that nobody of us wrote keeps the holder from renewing, but says nothing of how
		// long it has been silent: it is watched.
		if p.Condemned != nil && p.Condemned.By != "" {
			e.Condemned = fmt.Sprintf("by %s: %s", catalog.Printable(p.Condemned.By, 200),
				catalog.Printable(p.Condemned.Evidence, 400))
		}
	}
	return e
}

// observations are what a process has seen of others, so that repeated TryLock calls get there and
// one observation of a process serves all its locks. mongos 2.0.0 kept them in the lock object, and
// abandoned locks were never taken over.
type observations struct {
	mu    sync.Mutex // guards the fields below
	seen  map[takeover.Subject]*observed
	swept time.Duration // monotonic time of the last sweep
}

type observed struct {
	takeover.Observation
	last time.Duration // monotonic time of the last look
}

// maxObservations is the number of observations from which those that are not looked at any more
// are dropped, once a ping interval: to look through all of them at each look would cost
// milliseconds.
const maxObservations = 256

// look adds one look to the observation it belongs to and decides.
func (o *observations) look(e *takeover.Evidence, p takeover.Policy) takeover.Decision {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = map[takeover.Subject]*observed{}
	}
	if len(o.seen) > maxObservations && e.Sent-o.swept >= p.PingInterval {
		o.swept = e.Sent
		for subject, old := range o.seen {
			if e.Sent-old.last > p.MaxGap {
				delete(o.seen, subject)
			}
		}
	}
	subject := e.Subject()
	before := o.seen[subject]
	if before == nil {
		before = &observed{}
		o.seen[subject] = before
	}
	if first, begun := before.First(); begun && e.Sent < before.last {
		// Replies may come in another order than the looks were sent, when several goroutines
		// wait, and one look may show a process several times. A look that overlaps the last one
		// is judged and does not disturb the observation.
		e.LongestGap = 0
		if e.Server.Before(first.Server) {
			e.Server = first.Server
		}
		return takeover.Decide(first, *e, p)
	}
	next, decision := before.Look(*e, p)
	before.Observation, before.last = next, e.Received
	return decision
}

// unchanged returns for how long the picture of a subject has stood.
func (o *observations) unchanged(s takeover.Subject) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seen := o.seen[s]; seen != nil {
		return seen.Unchanged()
	}
	return 0
}

// A Scene is one look at a lock, judged. It is never written to: several waiters share it.
type Scene struct {
	catalog.Snapshot
	Name   string
	Judged []Judged // the holders, then the waiters, in their order
}

// A Judged is a holder or a waiter, what is known of its process, and what may be done about it.
type Judged struct {
	catalog.Participant
	PingState catalog.PingState
	Waits     bool
	Evidence  takeover.Evidence
	Decision  takeover.Decision
	// Renewal is not zero when it is dead because its lease has stood still with that renewal, whether
	// or not its process lives.
	Renewal int64
	// Passed is set when it waited, had missed two pings, and was passed over.
	Passed bool
}

// Watched names a suspect of a lock for the store, as it was watched.
func (s *Judged) Watched(lock string) catalog.Holder {
	h := HolderOf(lock, s.Participant)
	h.Renewal = s.Renewal
	return h
}

// Dead reports whether the takeover rule lets it be taken out of the lock.
func (s *Judged) Dead() bool { return s.Decision.Verdict == takeover.Take }

// Rule names the takeover rule by which it is dead, as [takeover.Decision] does; "lease" when its
// lease stood still, by whichever rule, and "silent" for a waiter that was passed over.
func (s *Judged) Rule() string {
	switch {
	case s.Renewal != 0:
		return "lease"
	case s.Passed:
		return "silent"
	}
	return s.Decision.Rule
}

// Holders are the suspects that hold the lock.
func (s *Scene) Holders() []Judged {
	n := 0
	for n < len(s.Judged) && !s.Judged[n].Waits {
		n++
	}
	return s.Judged[:n]
}

// Free reports whether nobody holds the lock.
func (s *Scene) Free() bool { return s.LockErr == nil && len(s.Holders()) == 0 }

// Malformed says what of the lock or its holders cannot be understood; nil when all can.
func (s *Scene) Malformed() error {
	if s.LockErr != nil {
		return s.LockErr
	}
	for _, h := range s.Holders() {
		if h.PingState.Err != nil {
			return h.PingState.Err
		}
	}
	return nil
}

// OtherLimit says that the lock is in use with another limit than asked for; nil when it is not.
func (s *Scene) OtherLimit(asked int32) *catalog.PermitMismatchError {
	if s.Lock == nil || len(s.Judged) == 0 || s.Lock.Limit == asked {
		return nil
	}
	return &catalog.PermitMismatchError{Name: s.Name, Recorded: s.Lock.Limit, Asked: asked}
}

// Silent reports whether everybody who uses the lock with another limit than asked for has been
// Silent for longer than a living process would be: they may all turn out to be dead.
func (s *Scene) Silent(asked int32) bool {
	for _, one := range s.Judged {
		verdict := one.Decision.Verdict
		if (one.Waits && one.Limit == asked) ||
			verdict == takeover.Watch || verdict == takeover.Skewed || verdict == takeover.Take {
			continue
		}
		return false
	}
	return true
}

// Still returns for how long nobody came into the lock or its line, by the server's clock; zero
// when that is unknown.
func (s *Scene) Still() time.Duration {
	var moved time.Time
	for _, one := range s.Judged {
		if one.Since.After(moved) {
			moved = one.Since
		}
	}
	if moved.IsZero() || s.ServerTime.IsZero() {
		return 0
	}
	return max(0, s.ServerTime.Sub(moved))
}

// Pictured is the scene that a lock document alone shows: who holds the lock, and nothing of
// whether they live.
func Pictured(lock catalog.Lock) *Scene {
	s := &Scene{Snapshot: catalog.Snapshot{Lock: &lock}, Name: lock.Name}
	for _, p := range lock.Holders() {
		s.Judged = append(s.Judged, Judged{Participant: p})
	}
	return s
}
