package distlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/takeover"
)

// A scene is one look at a lock, judged. It is never written to: waiters share it with the attendant.
type scene struct {
	catalog.Look
	name     string
	suspects []suspect // the holders, then the waiters, in their order
}

// A suspect is a holder or a waiter, what is known of its process, and what may be done about it.
type suspect struct {
	catalog.Party
	pulse    catalog.Pulse
	waits    bool
	evidence takeover.Evidence
	decision takeover.Decision
}

func (s *suspect) dead() bool { return s.decision.Verdict == takeover.Take }

// holders are the suspects that hold the lock.
func (s *scene) holders() []suspect {
	n := 0
	for n < len(s.suspects) && !s.suspects[n].waits {
		n++
	}
	return s.suspects[:n]
}

// free reports whether nobody holds the lock.
func (s *scene) free() bool { return s.LockErr == nil && len(s.holders()) == 0 }

// malformed says what of the lock or its holders cannot be understood; nil when all can.
func (s *scene) malformed() error {
	if s.LockErr != nil {
		return s.LockErr
	}
	for _, h := range s.holders() {
		if h.pulse.Err != nil {
			return h.pulse.Err
		}
	}
	return nil
}

// otherLimit says that the lock is in use with another limit than asked for; nil when it is not.
func (s *scene) otherLimit(asked int32) *LimitError {
	if s.Lock == nil || len(s.suspects) == 0 || s.Lock.Limit == asked {
		return nil
	}
	return &LimitError{Name: s.name, Recorded: s.Lock.Limit, Asked: asked}
}

// silent reports whether everybody who uses the lock with another limit than asked for has been
// silent for longer than a living process would be: they may all turn out to be dead.
func (s *scene) silent(asked int32) bool {
	for _, one := range s.suspects {
		verdict := one.decision.Verdict
		if (one.waits && one.Limit == asked) ||
			verdict == takeover.Watch || verdict == takeover.Skewed || verdict == takeover.Take {
			continue
		}
		return false
	}
	return true
}

// still returns for how long nobody came into the lock or its line, by the server's clock; zero when
// that is unknown.
func (s *scene) still() time.Duration {
	var moved time.Time
	for _, one := range s.suspects {
		if one.Since.After(moved) {
			moved = one.Since
		}
	}
	if moved.IsZero() || s.ServerTime.IsZero() {
		return 0
	}
	return max(0, s.ServerTime.Sub(moved))
}

// find returns the suspect with that session and process.
func (s *scene) find(p catalog.Party) (suspect, bool) {
	for _, other := range s.suspects {
		if other.TS == p.TS && other.Process == p.Process {
			return other, true
		}
	}
	return suspect{}, false
}

// look reads a lock and judges it.
func (m *Manager) look(ctx context.Context, name string) (scene, error) {
	sent := m.cfg.Clock.Now() // R2: before the look is sent
	seen, err := m.locks.Look(ctx, name)
	if err != nil {
		return scene{}, err
	}
	return m.judge(name, seen, sent, m.cfg.Clock.Now()), nil // R1: after the reply
}

// judge adds a look to the watches of the processes that it shows, and decides on each.
func (m *Manager) judge(name string, seen catalog.Look, sent, received clock.Reading) scene {
	if seen.Primary == "" {
		seen.Primary = m.pinger.Server().Primary
	}
	s := scene{Look: seen, name: name}
	if seen.Lock == nil {
		return s
	}
	judged := map[likeness]suspect{}
	add := func(parties []catalog.Party, waits bool) {
		for _, p := range parties {
			like := likeness{p.Process, p.Takeover}
			one, known := judged[like]
			if !known || one.evidence.Subject().Lock != "" {
				one = m.suspect(name, seen, p, sent, received)
				judged[like] = one
			}
			one.Party, one.waits = p, waits
			s.suspects = append(s.suspects, one)
		}
	}
	add(seen.Lock.Holders(), false)
	add(seen.Lock.Waiters, true)
	return s
}

// A likeness is what makes two parties of one look one case: the safety of a takeover hangs on the
// ping of the process.
type likeness struct {
	process  string
	takeover time.Duration
}

func (m *Manager) suspect(name string, seen catalog.Look, p catalog.Party,
	sent, received clock.Reading) suspect {
	one := suspect{pulse: seen.Pulses[p.Process]}
	one.evidence = evidenceOf(name, seen, p, sent, received)
	one.decision = m.watches.look(&one.evidence, m.cfg.policy())
	return one
}

func evidenceOf(name string, look catalog.Look, party catalog.Party, sent, received clock.Reading,
) takeover.Evidence {
	e := traceOf(party, look.Pulses[party.Process])
	e.Name, e.Server, e.Primary = name, look.ServerTime, look.Primary
	e.Wall, e.Sent, e.Received = received.Wall, sent.Mono, received.Mono
	return e
}

// traceOf is what a holder or waiter has left in the documents.
func traceOf(party catalog.Party, pulse catalog.Pulse) takeover.Evidence {
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

// look adds one look to the observation it belongs to and decides.
func (w *watches) look(e *takeover.Evidence, p takeover.Policy) takeover.Decision {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = map[takeover.Subject]watched{}
	}
	if len(w.seen) > maxWatches {
		for subject, old := range w.seen {
			if e.Sent-old.last > p.MaxGap {
				delete(w.seen, subject)
			}
		}
	}
	subject := e.Subject()
	before := w.seen[subject]
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
	w.seen[subject] = watched{Observation: next, last: e.Received}
	return decision
}

// buryDead takes the dead among the first n suspects out of a lock and returns how many. The last come
// first, so that nobody dead is granted the lock on the way; those of this process are left to its
// reaper. What others did meanwhile is no error as long as somebody was buried.
func (m *Manager) buryDead(ctx context.Context, s scene, n int) (buried int, err error) {
	done := condemned{}
	for _, one := range slices.Backward(s.suspects[:n]) {
		if !one.dead() || one.Process == m.Process() {
			continue
		}
		switch e := m.bury(ctx, s, one, done); {
		case e == nil:
			buried++
		case !errors.Is(e, catalog.ErrNoMatch):
			return buried, e
		default:
			err = e
		}
	}
	if buried > 0 {
		err = nil
	}
	return buried, err
}

// bury takes a dead holder or waiter out of a lock, on the evidence of its watch: make sure of the
// primary, condemn its process, and take it out, by which the next in line is granted the lock. An
// error that matches catalog.ErrNoMatch says that somebody was faster or the process lives.
func (m *Manager) bury(ctx context.Context, s scene, dead suspect, done condemned) error {
	evidence, err := m.condemn(ctx, s, dead, done)
	if err != nil {
		return err
	}
	awards, err := m.locks.Bury(ctx, holderOf(s.name, dead.Party), evidence)
	if err != nil {
		return m.before(s, "bury", err)
	}
	m.log.Warn().Str("lock", catalog.Printable(s.name, 200)).
		Str("process", catalog.Printable(dead.Process, 200)).Bool("waited", dead.waits).
		Str("evidence", evidence).Msg("buried")
	m.room.deliver(awards)
	return nil
}

func holderOf(name string, p catalog.Party) catalog.Holder {
	return catalog.Holder{Session: catalog.Session{Name: name, TS: p.TS}, Process: p.Process}
}

// condemned are the processes that were condemned on one scene: their other places need no mark
// of their own.
type condemned map[string]bool

// condemn carries out the steps between a verdict Take and the taking, and returns the evidence in
// words.
func (m *Manager) condemn(ctx context.Context, s scene, dead suspect, done condemned) (string, error) {
	d, ping := dead.decision, dead.pulse.Ping
	evidence := fmt.Sprintf("rule %s: %s", d.Rule, d.Reason)
	if err := m.samePrimary(ctx, s, dead); err != nil {
		return "", err
	}
	if dead.evidence.Foreign() || done[dead.Process] || ping != nil && ping.Condemned != nil {
		return evidence, nil
	}
	err := m.locks.Condemn(ctx, dead.Process, ping, catalog.Condemnation{
		By: m.Process(), Evidence: evidence,
	})
	switch {
	case errors.Is(err, catalog.ErrUnknownOutcome): // perhaps condemned: the next look tells
		return "", fmt.Errorf("%w: %w", catalog.ErrNoMatch, err)
	case err != nil:
		return "", m.before(s, "condemn", err)
	}
	done[dead.Process] = true
	m.log.Warn().Str("process", catalog.Printable(dead.Process, 200)).
		Str("evidence", evidence).Msg("condemned")
	return evidence, nil
}

// samePrimary makes sure, right before a takeover, that the server that answered the watch is
// primary now. An old primary that was cut off may answer reads for an election timeout. A holder
// of ours is condemned afterwards, by a write that only the true primary can carry out. For a
// foreign one, which cannot be condemned, the last look is made once more between two questions for
// the primary and before a linearizable read, so that it is the true primary's (R5).
func (m *Manager) samePrimary(ctx context.Context, s scene, dead suspect) error {
	if err := m.isPrimary(ctx, s); err != nil || !dead.evidence.Foreign() {
		return err
	}
	again, err := m.look(ctx, s.name)
	if err != nil {
		return m.before(s, "look", err)
	}
	if now, there := again.find(dead.Party); !there || !now.dead() || now.waits != dead.waits {
		return fmt.Errorf("%w: the last look showed another picture", catalog.ErrNoMatch)
	}
	lock, err := m.locks.Read(ctx, s.name)
	_, holds := lock.HeldBy(dead.TS)
	_, waits := lock.WaitedBy(dead.TS)
	if errors.Is(err, catalog.ErrNotFound) || err == nil && !holds && !waits {
		return fmt.Errorf("%w: the lock changed before the takeover", catalog.ErrNoMatch)
	}
	if err != nil {
		return m.before(s, "read", err)
	}
	return m.isPrimary(ctx, s)
}

func (m *Manager) isPrimary(ctx context.Context, s scene) error {
	server, err := m.locks.Hello(ctx)
	if err != nil {
		return m.before(s, "hello", err)
	}
	m.pinger.SetServer(server)
	if server.Primary != s.Primary {
		return fmt.Errorf("%w: another primary was elected during the watch", catalog.ErrNoMatch)
	}
	return nil
}

// before words an error of the last steps before a takeover.
func (m *Manager) before(s scene, step string, err error) error {
	return fmt.Errorf("distlock: acquire %s: %s before the takeover: %w", quoted(s.name), step, err)
}

// heldError tells the caller what is known of whoever is in the way: the first holder that lives as
// far as anybody can tell, or the first in line.
func (m *Manager) heldError(s scene) *HeldError {
	e := &HeldError{Name: s.name, PingAge: -1, Holders: len(s.holders())}
	if s.Lock != nil {
		e.Waiters, e.Mode = len(s.Lock.Waiters), modeWord(s.Lock.Mode)
		e.Fence, e.Permits = s.Lock.Fence, int(s.Lock.Limit)
	}
	if len(s.suspects) == 0 {
		e.Reason = "it was free a moment ago"
		return e
	}
	in := s.suspects[0]
	for _, h := range s.holders() {
		if !h.dead() {
			in = h
			break
		}
	}
	e.Process, e.Who, e.Why, e.Since = in.Process, in.Who, in.Why, in.Since
	e.TakeoverIn, e.Reason = in.decision.Remaining, ofIt(in.decision.Reason, in.Process)
	if !in.waits {
		e.Fence = in.Fence
	}
	if n := len(s.holders()); n >= MaxHolders {
		e.Reason = fmt.Sprintf("%d hold it, as many as may; %s", n, e.Reason)
	}
	last := m.pinger.Last()
	e.Self = last != nil && in.Process == last.Process()
	if in.pulse.Ping != nil && !s.ServerTime.IsZero() {
		e.PingAge = max(0, s.ServerTime.Sub(in.pulse.Ping.At))
	}
	return e
}

// ofIt words a verdict for a text that has named the process before.
func ofIt(reason, process string) string {
	if process == "" {
		return reason
	}
	id := `"` + strings.ReplaceAll(catalog.Printable(process, 200), `"`, `\"`) + `"`
	return strings.NewReplacer("ping of "+id, "its ping", id, "it").Replace(reason)
}
