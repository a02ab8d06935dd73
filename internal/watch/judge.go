package watch

import (
	"context"
	"fmt"
	"slices"
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
	Store  Store
	Pinger *pinger.LockPinger
	Clock  clock.Clock
	Policy takeover.Policy
	Log    zerolog.Logger
	// Events receives the condemnations and evictions. It may be nil.
	Events Events
	// Granted is called with the grants of each eviction before the next process is evicted.
	Granted func([]catalog.Grant)

	// Interval is the time between two reads of the locks that a call failed to acquire. The function
	// Go starts a goroutine, which ends soon after Closed is closed.
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

// Store has the methods of [catalog.Catalog] that a Judge calls.
type Store interface {
	Snapshots(ctx context.Context, names []string) (map[string]catalog.Snapshot, error)
	Read(ctx context.Context, name string) (catalog.Lock, error)
	Hello(ctx context.Context) (catalog.Server, error)
	ApplyPing(ctx context.Context, c catalog.PingChange) error
	Apply(ctx context.Context, t catalog.Transition) (catalog.Lock, []catalog.Grant, error)
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
		one.Decision.Remaining = d.Remaining // for the time of the next read
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
