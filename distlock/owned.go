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

// ownedSessions holds the sessions of this process: the current attempts, and the guards that are
// not released. It implements [pinger.Owner]. It refers to no *TryGuard, so that the garbage
// collector can find a dropped guard.
type ownedSessions struct {
	m *Manager

	mu       sync.Mutex             // guards the fields below
	attempts map[bson.ObjectID]bool // added before the command is sent
	holds    map[bson.ObjectID]*holding
	breaks   []lockBreak             // recorded during the current attempts
	ended    map[bson.ObjectID]bool  // sessions that ended during a Sweep; nil outside of a Sweep
	dropped  []*holding              // dropped by their callers without Release
	late     map[bson.ObjectID]int64 // fences of guards that are still to be released
	idle     chan struct{}           // closed when attempts is empty; nil if no call waits for it
}

func newOwned(m *Manager) *ownedSessions {
	return &ownedSessions{
		m: m, attempts: map[bson.ObjectID]bool{}, holds: map[bson.ObjectID]*holding{},
		late: map[bson.ObjectID]int64{},
	}
}

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

func (t *ownedSessions) remove(h *holding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.holds, h.request.TS)
	if t.ended != nil {
		t.ended[h.request.TS] = true
	}
}

// mostLate limits the fences that are kept for [EventReleasedLate].
const mostLate = 10_000

func (t *ownedSessions) releaseLater(h *holding) {
	if t.m.events != nil {
		t.mu.Lock()
		if len(t.late) >= mostLate {
			clear(t.late)
		}
		t.late[h.request.TS] = h.fence
		t.mu.Unlock()
	}
	t.m.pinger.ReleaseLater(h.request.Session, h.term)
}

// releasedLate returns the fence of a guard that was released in the background. For a session
// without a guard, such as a waiter's, it returns 0.
func (t *ownedSessions) releasedLate(ts bson.ObjectID) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	fence := t.late[ts]
	delete(t.late, ts)
	return fence
}

func (t *ownedSessions) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.holds)
}

func (t *ownedSessions) all() []*holding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.holds))
}

// endAll ends the trusted holdings, and returns all holdings.
func (t *ownedSessions) endAll(why error) []*holding {
	holds := t.all()
	for _, h := range holds {
		if h.err() == nil {
			h.end(why)
		}
	}
	return holds
}

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

// TermBegan starts the watchdog of a term. At the deadline the watchdog ends the guards' contexts,
// even if the ping loop does not run. It is the only timer for all guards.
func (t *ownedSessions) TermBegan(term *pinger.Term) {
	t.m.loops.Go(func() { // ends with the term or with Close
		t.m.untilOver(term.Err, term.Left, term.Done())
		t.loseTerm(term, term.Err())
	})
}

// untilOver returns when err returns an error, or when done is closed. The result of left is the
// time until err may return an error.
func (m *Manager) untilOver(err func() error, left func() time.Duration, done <-chan struct{}) {
	// A timer stops while the machine is suspended. So the timer runs for at most one ping interval,
	// and then the clock is read again.
	next := func() time.Duration { return min(left(), m.cfg.Ping) }
	timer := m.cfg.Clock.NewTimer(next())
	defer timer.Stop()
	for err() == nil {
		select {
		case <-timer.C():
			timer.Reset(next())
		case <-done:
			return
		}
	}
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
		h.reportLoss()
	}
}

// Owns reports whether an attempt or a guard has the session ts. A lost guard is included until its
// caller releases it, because the caller may still work.
func (t *ownedSessions) Owns(ts bson.ObjectID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attempts[ts] || t.holds[ts] != nil || t.ended[ts]
}

// Sweep ends and releases the guards that were dropped without Release since the last Sweep. It
// returns the sessions of the guards that are trusted under term. Until the returned function swept
// is called, Owns also returns true for the sessions that end in the meantime.
func (t *ownedSessions) Sweep(term *pinger.Term) (guarded []catalog.Session, swept func()) {
	t.mu.Lock()
	dropped := t.dropped
	t.dropped = nil
	t.ended = map[bson.ObjectID]bool{}
	t.mu.Unlock()
	for _, h := range dropped {
		t.m.log.Warn().Str("lock", catalog.Printable(h.request.Name, 200)).
			Int64("fence", h.fence).Str("why", catalog.Printable(h.why, 200)).
			Msg("guard was dropped without Release")
		h.end(fmt.Errorf("%w: its guard was dropped without Release", ErrReleased))
		h.reportLoss()
		h.report(EventDropped, 0, nil)
		t.releaseLater(h)
		t.remove(h)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.holds {
		if h.term == term && h.ended.Load() == nil {
			guarded = append(guarded, h.request.Session)
		}
	}
	return guarded, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ended = nil
	}
}

// Vanished reads the lock of a guard, after the reaper did not find the guard's session in the
// store. If the lock document does not contain the session either, the guard is lost.
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

// errBroken is the cause of a loss after an operator broke the lock through the guard's own
// Manager.
var errBroken = errors.New("an operator breaks it")

// A lockBreak identifies the guard that a break ends: by session, or by lock name and fence if the
// session is unknown.
type lockBreak struct {
	session catalog.Session
	fence   int64
}

func (b lockBreak) of(h *holding) bool {
	return h.request.Session == b.session ||
		b.session.TS.IsZero() && h.request.Name == b.session.Name && h.fence == b.fence
}

// endBroken ends the guards of a lock that an operator is about to break. It also records the break
// for attempts that wait for a reply. It returns the guards, and the caller reports their loss.
func (t *ownedSessions) endBroken(s catalog.Session, fence int64) (lost []*holding) {
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
