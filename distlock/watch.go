package distlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/takeover"
)

// observed is one look and what it is worth as evidence.
type observed struct {
	catalog.Look
	evidence takeover.Evidence
}

func (o observed) malformed() error {
	if o.LockErr != nil {
		return o.LockErr
	}
	return o.PingErr
}

// look reads a lock, adds the look to the watch of its holder and decides.
func (m *Manager) look(ctx context.Context, name string) (observed, takeover.Decision, error) {
	sent := m.cfg.Clock.Now() // R2: before the look is sent
	seen, err := m.locks.Look(ctx, name)
	if err != nil {
		return observed{}, takeover.Decision{}, err
	}
	received := m.cfg.Clock.Now() // R1: after the reply
	if seen.Primary == "" {
		seen.Primary = m.pinger.Server().Primary
	}
	o := observed{Look: seen, evidence: evidenceOf(name, seen, sent, received)}
	policy := m.cfg.policy()
	mistaken(m.mistakes, &o.evidence, &policy)
	return o, m.watches.look(o, policy), nil
}

func evidenceOf(name string, look catalog.Look, sent, received clock.Reading) takeover.Evidence {
	e := takeover.Evidence{
		Name: name, Server: look.ServerTime, Primary: look.Primary,
		Wall: received.Wall, Sent: sent.Mono, Received: received.Mono,
	}
	switch {
	case look.LockErr != nil:
		e.Malformed = look.LockErr.Error()
	case look.Lock == nil:
		return e
	default:
		e.Held, e.Process, e.TS = look.Lock.Held, look.Lock.Process, look.Lock.TS
		e.Recorded = look.Lock.Takeover
	}
	if look.PingErr != nil && e.Held {
		e.Malformed = look.PingErr.Error()
	}
	if p := look.Ping; p != nil {
		e.HasPing, e.Ping, e.Local = true, p.At, p.Local
		e.Seq, e.HasSeq = p.Seq, p.HasSeq
		e.PingInterval, e.PingTakeover = p.Interval, p.Takeover
		// A mark that nobody of us wrote keeps the holder from renewing, but says nothing of how
		// long it has been silent: it is watched (F18).
		if p.Condemned != nil && p.Condemned.By != "" {
			e.Condemned = fmt.Sprintf("by %s: %s", catalog.Printable(p.Condemned.By, 200),
				catalog.Printable(p.Condemned.Evidence, 400))
		}
	}
	return e
}

// watches are this Manager's observations, so that repeated TryLock calls get there and one
// observation of a process serves all its locks. mongos 2.0.0 kept them in the lock object, and
// abandoned locks were never taken over.
type watches struct {
	mu   sync.Mutex // guards seen
	seen map[takeover.Subject]watched
}

type watched struct {
	takeover.Observation
	last time.Duration // monotonic time of the last look
}

// maxWatches is the number of observations from which those that are not looked at any more are
// dropped.
const maxWatches = 256

// look adds one look to the observation it belongs to and decides. A lock that nobody holds says
// nothing about the process that held it last, and leaves its observation alone.
func (w *watches) look(o observed, p takeover.Policy) takeover.Decision {
	if !o.evidence.Held {
		return takeover.Decide(o.evidence, o.evidence, p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = map[takeover.Subject]watched{}
	}
	if len(w.seen) > maxWatches {
		for subject, old := range w.seen {
			if o.evidence.Sent-old.last > p.MaxGap {
				delete(w.seen, subject)
			}
		}
	}
	subject := o.evidence.Subject()
	before := w.seen[subject]
	if first, begun := before.First(); begun && o.evidence.Sent < before.last {
		// Replies may come in another order than the looks were sent, when several goroutines
		// wait. A look that overlaps the last one is judged and does not disturb the observation.
		o.evidence.LongestGap = 0
		if o.evidence.Server.Before(first.Server) {
			o.evidence.Server = first.Server
		}
		return takeover.Decide(first, o.evidence, p)
	}
	next, decision := before.Look(o.evidence, p)
	w.seen[subject] = watched{Observation: next, last: o.evidence.Received}
	return decision
}

// samePrimary makes sure, right before a takeover, that the server that answered the watch is
// primary now. An old primary that was cut off may answer reads for an election timeout. A holder
// of ours is condemned afterwards, by a write that only the true primary can carry out. For a
// foreign one, which cannot be condemned, the last look is made once more between two questions for
// the primary and before a linearizable read, so that it is the true primary's (R5).
func (m *Manager) samePrimary(ctx context.Context, o observed) error {
	if err := m.isPrimary(ctx, o); err != nil || o.Ping == nil || o.Ping.HasSeq {
		return err
	}
	again, decision, err := m.look(ctx, o.Lock.Name)
	if err != nil {
		return m.before(o, "look", err)
	}
	if decision.Verdict != takeover.Take || again.Lock.Session() != o.Lock.Session() {
		return fmt.Errorf("%w: the last look showed another picture", catalog.ErrNoMatch)
	}
	lock, err := m.locks.Read(ctx, o.Lock.Name)
	if errors.Is(err, catalog.ErrNotFound) || err == nil && lock.Session() != o.Lock.Session() {
		return fmt.Errorf("%w: the lock changed before the takeover", catalog.ErrNoMatch)
	}
	if err != nil {
		return m.before(o, "read", err)
	}
	return m.isPrimary(ctx, o)
}

func (m *Manager) isPrimary(ctx context.Context, o observed) error {
	server, err := m.locks.Hello(ctx)
	if err != nil {
		return m.before(o, "hello", err)
	}
	m.pinger.SetServer(server)
	if server.Primary != o.Primary {
		return fmt.Errorf("%w: another primary was elected during the watch", catalog.ErrNoMatch)
	}
	return nil
}

// before words an error of the last steps before a takeover.
func (m *Manager) before(o observed, step string, err error) error {
	return fmt.Errorf("distlock: acquire %s: %s before the takeover: %w", quoted(o.Lock.Name), step, err)
}

// heldError tells the caller what is known of the holder.
func (m *Manager) heldError(o observed, d takeover.Decision) *HeldError {
	e := &HeldError{
		Name: o.evidence.Name, PingAge: -1, TakeoverIn: d.Remaining, Reason: d.Reason,
	}
	if l := o.Lock; l != nil {
		e.Process, e.Who, e.Why, e.Since, e.Fence = l.Process, l.Who, l.Why, l.When, l.Fence
		last := m.pinger.Last()
		e.Self = last != nil && l.Process == last.Process()
	}
	if o.Ping != nil && !o.ServerTime.IsZero() {
		e.PingAge = max(0, o.ServerTime.Sub(o.Ping.At))
	}
	return e
}
