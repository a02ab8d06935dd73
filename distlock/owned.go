package distlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/pinger"
)

// ownedSessions is what this process owns: attempts that are under way and guards that were handed
// out and not yet released. It is the pinger's Owner. It holds no *TryGuard, so that a guard that
// its user dropped can be noticed.
type ownedSessions struct {
	m *Manager

	mu       sync.Mutex             // guards the fields below
	attempts map[bson.ObjectID]bool // entered before the command is sent
	holds    map[bson.ObjectID]*holding
	breaks   []lockBreak             // while attempts were under way
	ended    map[bson.ObjectID]bool  // since Sweep, whose answer may show them; nil outside of one
	dropped  []*holding              // their guards were dropped without Release
	late     map[bson.ObjectID]int64 // the fences of what the background has to release
	idle     chan struct{}           // closed when attempts is empty; nil when nobody waits for that
}

func newOwned(m *Manager) *ownedSessions {
	return &ownedSessions{
		m: m, attempts: map[bson.ObjectID]bool{}, holds: map[bson.ObjectID]*holding{},
		late: map[bson.ObjectID]int64{},
	}
}

// enter notes an attempt before it is sent.
func (t *ownedSessions) enter(ts bson.ObjectID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attempts[ts] = true
}

// attemptEnded ends an attempt, whatever became of it.
func (t *ownedSessions) attemptEnded(ts bson.ObjectID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.attempts, ts)
	if t.ended != nil {
		t.ended[ts] = true
	}
	if len(t.attempts) > 0 {
		return
	}
	t.breaks = nil
	if t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// add enters what an attempt has acquired, and reports whether an operator broke it since the
// attempt began.
func (t *ownedSessions) add(h *holding) (broken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds[h.session.TS] = h
	return slices.ContainsFunc(t.breaks, func(b lockBreak) bool { return b.of(h) })
}

func (t *ownedSessions) remove(h *holding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.holds, h.session.TS)
	if t.ended != nil {
		t.ended[h.session.TS] = true
	}
}

// mostLate bounds how many fences are kept for the events of late releases.
const mostLate = 10_000

// releaseLater leaves the release of what a guard held to the background.
func (t *ownedSessions) releaseLater(h *holding) {
	if t.m.events != nil {
		t.mu.Lock()
		if len(t.late) >= mostLate {
			clear(t.late)
		}
		t.late[h.session.TS] = h.fence
		t.mu.Unlock()
	}
	t.m.pinger.ReleaseLater(h.session, h.term)
}

// releasedLate returns the fence of a guard that the background has released; 0 where there was no
// guard: a session that only waited, or that nobody knew to hold.
func (t *ownedSessions) releasedLate(ts bson.ObjectID) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	fence := t.late[ts]
	delete(t.late, ts)
	return fence
}

// count returns how many guards there are that were not released.
func (t *ownedSessions) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.holds)
}

// all returns the holdings, in no order.
func (t *ownedSessions) all() []*holding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.holds))
}

// endAll ends those that are trusted, and returns all.
func (t *ownedSessions) endAll(why error) []*holding {
	holds := t.all()
	for _, h := range holds {
		if h.err() == nil {
			h.end(why)
		}
	}
	return holds
}

// untilIdle waits until no attempt is under way.
func (t *ownedSessions) untilIdle(ctx context.Context) error {
	t.mu.Lock()
	if len(t.attempts) == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TermBegan starts the watchdog of a term: it ends the guards' contexts at the deadline, whatever
// the ping loop is doing. It is the only timer there is, however many guards there are.
func (t *ownedSessions) TermBegan(term *pinger.Term) {
	t.m.loops.Go(func() { t.watchdog(term) }) // ends with the term, at the latest with Close
}

func (t *ownedSessions) watchdog(term *pinger.Term) {
	// It looks once an interval, for a suspended machine's timer has slept too.
	next := func() time.Duration { return min(term.Left(), t.m.cfg.Ping) }
	timer := t.m.cfg.Clock.NewTimer(next())
	defer timer.Stop()
	for term.Err() == nil {
		select {
		case <-timer.C():
		case <-term.Done():
		}
		timer.Reset(next())
	}
	t.loseTerm(term, term.Err())
}

func (t *ownedSessions) loseTerm(term *pinger.Term, cause error) {
	var lost []*holding
	for _, h := range t.all() {
		if h.term == term && h.endLost(cause) {
			lost = append(lost, h)
		}
	}
	defer func() { _ = recover() }() // a logger that panics must not end the program
	for _, h := range lost {
		h.tellLoss()
	}
}

// Owns reports whether a guard or an attempt names ts. A lost guard counts until its user has
// released it: the caller may still be winding down, and its lock is freed by its release or by a
// takeover.
func (t *ownedSessions) Owns(ts bson.ObjectID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attempts[ts] || t.holds[ts] != nil || t.ended[ts]
}

// Guarded returns the sessions of the guards that are trusted under term.
func (t *ownedSessions) Guarded(term *pinger.Term) []catalog.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	sessions := make([]catalog.Session, 0, len(t.holds))
	for _, h := range t.holds {
		if h.term == term && h.ended.Load() == nil {
			sessions = append(sessions, h.session)
		}
	}
	return sessions
}

// drop takes note of a guard that was dropped without Release, for the next Sweep.
func (t *ownedSessions) drop(h *holding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropped = append(t.dropped, h)
}

// Sweep ends and releases the guards that were dropped without Release since the last time.
func (t *ownedSessions) Sweep() {
	t.mu.Lock()
	dropped := t.dropped
	t.dropped = nil
	t.ended = map[bson.ObjectID]bool{}
	t.mu.Unlock()
	for _, h := range dropped {
		t.m.log.Warn().Str("lock", catalog.Printable(h.session.Name, 200)).
			Int64("fence", h.fence).Str("why", catalog.Printable(h.why, 200)).
			Msg("guard was dropped without Release")
		h.end(fmt.Errorf("%w: its guard was dropped without Release", ErrReleased))
		h.tellLoss()
		h.tell(EventDropped, 0, nil)
		t.releaseLater(h)
		t.remove(h)
	}
}

// Swept ends what Sweep began.
func (t *ownedSessions) Swept() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = nil
}

// Vanished asks again for a guard that the reaper did not find, and loses it when it is gone: a
// hand or a foreign manager took the lock.
func (t *ownedSessions) Vanished(ctx context.Context, s catalog.Session) {
	t.mu.Lock()
	h := t.holds[s.TS]
	t.mu.Unlock()
	if h == nil || h.ended.Load() != nil {
		return
	}
	if err := h.check(ctx); err != nil {
		t.m.log.Debug().Err(err).Str("lock", catalog.Printable(s.Name, 200)).Msg("vanished")
	}
}

// errBroken says why a guard is lost that an operator breaks by an Inspector of its own process.
var errBroken = errors.New("an operator breaks it")

// A lockBreak is what an operator is about to break: a session or, where he named none, a fence of
// a name.
type lockBreak struct {
	session catalog.Session
	fence   int64
}

func (b lockBreak) of(h *holding) bool {
	return h.session == b.session ||
		b.session.TS.IsZero() && h.session.Name == b.session.Name && h.fence == b.fence
}

// broken ends the guard that an operator is about to break, and notes the break for an attempt
// whose reply is on its way. Its caller tells of what it returns.
func (t *ownedSessions) broken(s catalog.Session, fence int64) (lost []*holding) {
	b := lockBreak{s, fence}
	t.mu.Lock()
	if len(t.attempts) > 0 {
		t.breaks = append(t.breaks, b)
	}
	t.mu.Unlock()
	for _, h := range t.all() {
		if b.of(h) {
			h.endLost(errBroken)
			lost = append(lost, h)
		}
	}
	return lost
}
