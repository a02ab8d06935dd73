// Package watch evicts dead processes from locks. It reads the locks, observes the processes of
// their holders and waiters, and decides which processes are dead. Package takeover contains the
// rule for the decision. Dead processes are condemned and evicted.
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
	"mongodlm/pinger"
	"mongodlm/takeover"
)

// A Judge reads the locks that its process cannot acquire. It decides by the takeover rule which
// holders and waiters are dead, and evicts them. It is safe for concurrent use.
type Judge struct {
	Store  catalog.Catalog
	Pinger *pinger.LockPinger
	Clock  clock.Clock
	Policy takeover.Policy
	Log    zerolog.Logger
	// Events receives the condemnations and evictions. It may be nil.
	Events Events
	// Granted is called with the grants of each eviction before the next process is evicted.
	Granted func([]catalog.Grant)

	// Interval is the time between two reads of the locks that a call failed to acquire. Go starts a
	// goroutine, which ends soon after Closed is closed.
	Interval time.Duration
	Go       func(func())
	Closed   <-chan struct{}

	seen    observations
	refused refusals
}

// Events is notified of each condemned process, and of each evicted holder or waiter. Its methods
// must not block, because they delay further evictions.
type Events interface {
	Condemned(process, rule, evidence string)
	Evicted(lock string, dead Suspect, evidence string)
}

// Read reads a lock, decides on its holders and waiters, and calls RecordSightings.
func (j *Judge) Read(ctx context.Context, name string) (View, error) {
	sent := j.Clock.Now() // R2 in docs/safety.md: before the command is sent
	seen, err := catalog.LookAt(ctx, j.Store, name)
	if err != nil {
		return View{}, err
	}
	v := j.Decide(name, seen, sent, j.Clock.Now()) // R1: after the reply
	j.RecordSightings(ctx, v)
	return v, nil
}

// Decide adds a snapshot of a lock to the observations of its holders and waiters, and decides on
// each of them.
func (j *Judge) Decide(name string, seen catalog.Snapshot, sent, received clock.Reading) View {
	if seen.Primary == "" {
		seen.Primary = j.Pinger.Server().Primary
	}
	v := View{Snapshot: seen, Name: name}
	defer func() { j.noteRead(&v, sent, received) }()
	if seen.Lock == nil {
		return v
	}
	holders := seen.Lock.Holders()
	all := slices.Concat(holders, seen.Lock.Waiters)
	v.Suspects = make([]Suspect, 0, len(all))
	decided := map[evidenceKey]Suspect{}
	for i, p := range all {
		key, waits := evidenceKey{p.Process, p.Takeover}, i >= len(holders)
		one, known := decided[key]
		if !known || one.Evidence.Subject().Lock != "" {
			one = Suspect{PingState: seen.Pings[p.Process]}
			e := EvidenceOf(p, one.PingState)
			e.Name, e.Server, e.Primary = name, seen.ServerTime, seen.Primary
			e.Wall, e.Sent, e.Received = received.Wall, sent.Mono, received.Mono
			if e.Sight.By == j.Pinger.Process() {
				e.Sight = takeover.Sight{} // the observation of this process has more data
			}
			if e.Subject().Lock == "" { // another session of the process does not restart the watch
				e.TS = bson.NilObjectID
			}
			one.Decision = j.seen.add(&e, j.Policy)
			one.Evidence = e
			decided[key] = one
		}
		one.Participant, one.Waits = p, waits
		lease, ok := seen.Lock.LeaseOf(p.TS)
		if ok && !waits && !one.Dead() && one.PingState.Err == nil {
			j.decideLease(&one, name, seen, lease, sent, received)
		}
		v.Suspects = append(v.Suspects, one)
	}
	return v
}

// An evidenceKey identifies a decision. One decision applies to all holders and waiters of a lock
// that have the same process and the same recorded takeover time.
type evidenceKey struct {
	process  string
	takeover time.Duration
}

// decideLease judges a holder by its lease, if its process is not dead. It is not called if the
// ping is malformed, because another version of this module may have written both the ping and the
// lease.
func (j *Judge) decideLease(one *Suspect, name string, seen catalog.Snapshot, lease catalog.Lease,
	sent, received clock.Reading) {
	e := takeover.Evidence{
		Name: name, Held: true, Process: one.Process, TS: one.TS, Lease: true,
		HasPing: true, Ping: lease.At, Local: lease.Local, Seq: lease.Number, HasSeq: true,
		PingTakeover: lease.Life,
		Server:       seen.ServerTime, Primary: seen.Primary,
		Wall: received.Wall, Sent: sent.Mono, Received: received.Mono,
	}
	d := j.seen.add(&e, j.Policy.OfLease(lease.Life))
	switch {
	case d.Verdict == takeover.Take:
		one.Evidence, one.Decision, one.Renewal = e, d, lease.Number
	case one.Decision.Remaining <= 0 || d.Remaining < one.Decision.Remaining:
		one.Decision.Remaining = d.Remaining // determines the time of the next read
		one.Decision.Reason += "; " + d.Reason
	}
}

// EvidenceOf returns the evidence on a holder or waiter, from the lock document and the ping.
func EvidenceOf(p catalog.Participant, state catalog.PingState) takeover.Evidence {
	e := takeover.Evidence{
		Held: true, Process: p.Process, TS: p.TS, Recorded: p.Takeover,
	}
	if state.Err != nil {
		e.Malformed = state.Err.Error()
	}
	if ping := state.Ping; ping != nil {
		e.HasPing, e.Ping, e.Local = true, ping.At, ping.Local
		e.Seq, e.HasSeq = ping.Seq, ping.HasSeq
		e.PingInterval, e.PingTakeover = ping.Interval, ping.Takeover
		seen := ping.Sight
		e.Sight = takeover.Sight{Seq: seen.Seq, Server: seen.At, Local: seen.Local, By: seen.By}
		// A condemnation without the field By was written by a foreign program. It does not prove that
		// the process is silent, so the holder is watched.
		if ping.Condemned != nil && ping.Condemned.By != "" {
			e.Condemned = fmt.Sprintf("by %s: %s", catalog.Printable(ping.Condemned.By, 200),
				catalog.Printable(ping.Condemned.Evidence, 400))
		}
	}
	return e
}

// A View is a snapshot of a lock with a decision on each holder and waiter. A View is never
// modified, because several waiters share it.
type View struct {
	catalog.Snapshot
	Name     string
	Suspects []Suspect // the holders, then the waiters in queue order
}

// A Suspect is a holder or waiter, with the state of its process and a decision.
type Suspect struct {
	catalog.Participant
	PingState catalog.PingState
	Waits     bool
	Evidence  takeover.Evidence
	Decision  takeover.Decision
	// Renewal is the number of the last renewal if the holder's lease has expired, else 0. If Renewal
	// is not 0, the process may be alive.
	Renewal int64
	// Silent is set for a waiter that was evicted because its process had missed two pings.
	Silent bool
}

// ViewOf returns a view of a lock document alone. Its suspects are the holders, without pings and
// decisions.
func ViewOf(lock catalog.Lock) *View {
	v := &View{Snapshot: catalog.Snapshot{Lock: &lock}, Name: lock.Name}
	for _, p := range lock.Holders() {
		v.Suspects = append(v.Suspects, Suspect{Participant: p})
	}
	return v
}

// HolderOf returns the [catalog.Holder] that identifies a holder or waiter of the given lock.
func HolderOf(lock string, p catalog.Participant) catalog.Holder {
	return catalog.Holder{Session: catalog.Session{Name: lock, TS: p.TS}, Process: p.Process}
}

// Holder returns the [catalog.Holder] that identifies the suspect, with the watched renewal.
func (s *Suspect) Holder(lock string) catalog.Holder {
	h := HolderOf(lock, s.Participant)
	h.Renewal = s.Renewal
	return h
}

// Dead reports whether the takeover rule permits the eviction of the suspect.
func (s *Suspect) Dead() bool { return s.Decision.Verdict == takeover.Take }

// Rule returns the name of the rule that permits the eviction, as in [takeover.Decision]. For an
// expired lease it returns "lease". For a silent waiter it returns "silent".
func (s *Suspect) Rule() string {
	switch {
	case s.Renewal != 0:
		return "lease"
	case s.Silent:
		return "silent"
	}
	return s.Decision.Rule
}

// Holders returns the suspects that hold the lock.
func (v *View) Holders() []Suspect {
	n := 0
	for n < len(v.Suspects) && !v.Suspects[n].Waits {
		n++
	}
	return v.Suspects[:n]
}

// Free reports whether the lock has no holder.
func (v *View) Free() bool { return v.LockErr == nil && len(v.Holders()) == 0 }

// Malformed returns the first error in the lock document and in the holders' pings, or nil.
func (v *View) Malformed() error {
	if v.LockErr != nil {
		return v.LockErr
	}
	for _, h := range v.Holders() {
		if h.PingState.Err != nil {
			return h.PingState.Err
		}
	}
	return nil
}

// OtherLimit returns an error if the lock is used with another limit than the given one, else nil.
func (v *View) OtherLimit(asked int32) *catalog.PermitMismatchError {
	if v.Lock == nil || len(v.Suspects) == 0 || v.Lock.Limit == asked {
		return nil
	}
	return &catalog.PermitMismatchError{Name: v.Name, Recorded: v.Lock.Limit, Asked: asked}
}

// OthersSilent reports whether all holders are silent, and also all waiters with another limit than
// the given one. Silent processes may be dead.
func (v *View) OthersSilent(asked int32) bool {
	for _, one := range v.Suspects {
		verdict := one.Decision.Verdict
		if (one.Waits && one.Limit == asked) ||
			verdict == takeover.Watch || verdict == takeover.Skewed || verdict == takeover.Take {
			continue
		}
		return false
	}
	return true
}

// observations holds the observations of other processes. Repeated calls of TryLock continue one
// observation. All locks of an observed process share one observation.
type observations struct {
	mu    sync.Mutex // guards the fields below
	seen  map[takeover.Subject]*observed
	swept time.Duration // monotonic time of the last sweep
}

type observed struct {
	takeover.Observation
	last time.Duration // monotonic time of the last read
}

// maxObservations is the number of observations above which abandoned observations are dropped. The
// search for abandoned observations runs once per ping interval, because it takes milliseconds.
const maxObservations = 256

// add adds one read to the observation of its subject, and returns the decision.
func (o *observations) add(e *takeover.Evidence, p takeover.Policy) takeover.Decision {
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
	if first, begun := before.First(); begun && e.Sent <= before.last {
		// Reads of several goroutines may overlap, and one read may contain a process several times. If
		// this read overlaps the previous read, the decision uses it, but the observation is not updated.
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

// unchanged returns the time for which the observed documents of a subject have not changed.
func (o *observations) unchanged(s takeover.Subject) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seen := o.seen[s]; seen != nil {
		return seen.Unchanged()
	}
	return 0
}
