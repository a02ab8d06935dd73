package distlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
)

// This file releases locks for a caller and for Close. Both wait for the outcome and report it, and
// try again after a failure. If no caller waits for a release, for example after an abandoned call
// or a dropped guard, the pinger releases the lock in the background, by ReleaseInStore.

// Release frees the lock if this guard still holds it, and never the lock of another holder. After
// [TryGuard.Reenter] the last release frees the lock. Release works even after the context of the
// acquisition has expired. It sends one command, after a failure up to three, with pauses of 2 and
// 4 s. A second Release waits for the first one and returns the same result. A nil guard returns
// nil, so Release may be deferred before the error is checked.
//
// Release returns nil if the lock was freed while the guard was trusted. Errors:
//   - *LostError: the guard was lost before. If the document still contains the session, the
//     Manager frees the lock after its next acknowledged ping, unless that ping reveals a twin.
//   - An error that matches [ErrClosed]: Close freed the lock before Release.
//   - *ReleaseError: every try failed.
func (g *TryGuard) Release() error {
	if g == nil {
		return nil
	}
	return g.releaseWithin(g.h.m.life)
}

func (g *TryGuard) releaseWithin(ctx context.Context) error {
	defer runtime.KeepAlive(g)
	ended := g.h.endError()
	g.release.Do(func() {
		g.cleanup.Stop()
		g.released.Store(true)
		g.last, g.outcome = g.h.lastGuard(), ended
	})
	if g.last {
		return g.h.release(ctx, ErrReleased)
	}
	return g.outcome
}

// endError returns the error of a guard that has ended, or nil.
func (h *holding) endError() error {
	err := h.err()
	if errors.Is(err, ErrClosed) && !errors.Is(err, ErrLockLost) {
		return failedTo("release", h.request.Name,
			fmt.Errorf("%w before the guard was released", ErrClosed))
	}
	return err
}

// release ends the guard and frees the document once. If another call has begun the release, this
// call waits for the outcome. In both cases release returns at the latest when ctx ends. The
// parameter why becomes the cause of the guard's context.
func (h *holding) release(ctx context.Context, why error) error {
	h.mu.Lock()
	freed, first := h.freed, h.freed == nil
	if first {
		freed = make(chan struct{})
		h.freed = freed
	}
	h.mu.Unlock()
	if first {
		defer close(freed)
		began := h.m.cfg.Clock.Now().Mono
		h.outcome = h.failed(0, errors.New("the release panicked"))
		h.outcome = h.free(ctx, why)
		if h.m.events != nil && h.wasHanded() {
			h.report(EventReleased, h.m.cfg.Clock.Now().Mono-began, h.outcome)
		}
		return h.outcome
	}
	select {
	case <-freed:
		return h.outcome
	default:
	}
	select {
	case <-freed:
		return h.outcome
	case <-ctx.Done():
		h.m.owned.releaseLater(h) // the lock may still be held
		lost := h.endError()
		if errors.Is(lost, ErrReleased) {
			lost = nil // the other call has released the guard
		}
		return errors.Join(lost, h.failed(0, context.Cause(ctx)))
	}
}

func (h *holding) free(ctx context.Context, why error) error {
	lost := h.endError() // before the first try: later the order of loss and release is unknown
	if !h.end(why) {
		h.reportLoss()
	}
	defer h.m.owned.remove(h) // after ReleaseLater, so that the reaper sees no gap
	tries, err := h.tryRelease(ctx)
	switch {
	case errors.Is(err, catalog.ErrTwin) && !errors.Is(lost, ErrLockLost): // found after the check
		return &LostError{Name: h.request.Name, Fence: h.fence, Cause: err}
	case tries == 0 && errors.Is(lost, ErrLockLost): // a twin may have the lock by now
		h.m.owned.releaseLater(h)
		return lost
	case err == nil || errors.Is(err, catalog.ErrNoMatch):
		if err != nil && !errors.Is(lost, ErrLockLost) {
			lost = &LostError{Name: h.request.Name, Fence: h.fence,
				Cause: errors.New("the lock is not held by this session any more, nothing was changed")}
		}
		h.m.log.Info().Str("lock", catalog.Printable(h.request.Name, 200)).
			Stringer("ts", h.request.TS).Int64("fence", h.fence).Bool("was_held", err == nil).
			Msg("released")
		return lost
	default:
		h.m.owned.releaseLater(h)
		return errors.Join(lost, h.failed(tries, err))
	}
}

// failed returns the error of a release after which the lock may still be held.
func (h *holding) failed(tries int, err error) error {
	if h.m.life.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return &ReleaseError{Name: h.request.Name, Fence: h.fence, Tries: tries, Err: err}
}

// tryRelease frees the document by its session. By default it tries three times, like mongos. If a
// try has an unknown outcome and a later try matches no document, the earlier try freed the lock.
// This conclusion holds only while the term and the lease last, because until then no other process
// can take the lock.
func (h *holding) tryRelease(ctx context.Context) (tries int, err error) {
	unknown := false
	last := clock.Over(h.m.closed)
	for pause := h.m.cfg.ReleasePause; ; pause *= 2 {
		try, done, refused := h.m.pinger.Releasing(ctx, h.term)
		if refused != nil {
			return tries, errors.Join(err, refused)
		}
		tries++
		one, cancel := context.WithTimeout(try, h.m.cfg.CommandTimeout)
		err = h.leave(one)
		cancel()
		done()
		if err == nil || unknown && errors.Is(err, catalog.ErrNoMatch) && h.lapsed() == nil {
			return tries, nil
		}
		if errors.Is(err, catalog.ErrNoMatch) {
			return tries, err
		}
		unknown = unknown || errors.Is(err, catalog.ErrUnknownOutcome)
		if last || tries >= h.m.cfg.ReleaseTries || ctx.Err() != nil {
			return tries, err
		}
		if last = !h.rest(ctx, pause); ctx.Err() != nil {
			return tries, err
		}
	}
}

// leave removes the session of a holder from its lock. If an entry waits for this release, the same
// command queues the session of the entry.
func (h *holding) leave(ctx context.Context) error {
	h.m.agents.mu.Lock()
	if a := h.m.agents.byName[h.request.Name]; a != nil {
		a.hold = h.m.cfg.Clock.Now().Mono - h.since
	}
	h.m.agents.mu.Unlock()
	leave := transition.Leave{Session: h.request.Session}
	reply := enterReply{err: catalog.ErrUnknownOutcome} // of a store that panics
	if p := h.next.Swap(released); p != nil && p != released {
		leave.Enqueue = &p.request
		defer func() { p.reply <- reply }()
	}
	sent := h.m.cfg.Clock.Now().Mono
	lock, grants, err := h.m.locks.Apply(ctx, leave)
	reply = enterReply{lock, h.m.cfg.Clock.Now().Mono - sent, err}
	h.m.queue.Deliver(grants)
	return err
}

// rest pauses between two tries. If ctx ends or Close begins during the pause, rest returns false.
func (h *holding) rest(ctx context.Context, pause time.Duration) bool {
	timer := h.m.cfg.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-h.m.closed:
	case <-ctx.Done():
	}
	return false
}

// ReleaseInStore removes a session from its lock, and delivers the resulting grants to the waiters
// of this Manager.
func (t *ownedSessions) ReleaseInStore(ctx context.Context, s catalog.Session) error {
	_, grants, err := t.m.locks.Apply(ctx, transition.Leave{Session: s})
	t.m.queue.Deliver(grants)
	return err
}

// releaseContext returns the context of a release. That is ctx, or a context for one CommandTimeout
// if ctx has expired.
func (m *Manager) releaseContext(ctx context.Context) (context.Context, func()) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return m.within(context.WithoutCancel(ctx), m.cfg.CommandTimeout)
}

// releaseAtClose releases a guard. If the release fails, the Close of the pinger tries once more
// and reports the failure.
func (m *Manager) releaseAtClose(ctx context.Context, h *holding) {
	defer func() {
		if recover() != nil { // a logger or a store that panics must not end the program
			h.m.owned.releaseLater(h)
		}
	}()
	if err := h.release(ctx, ErrClosed); err != nil {
		m.log.Debug().Err(err).Msg("release at close")
	}
}

const releaseParallel = 16

// runParallel calls the given function with each number from 0 to n-1. At most releaseParallel
// calls run at a time. If a call panics, runParallel panics after the last call has returned.
func runParallel(n int, do func(i int)) {
	var calls sync.WaitGroup
	running, panics := make(chan struct{}, releaseParallel), make(chan any, n)
	for i := range n {
		running <- struct{}{}
		calls.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- p
				}
				<-running
			}()
			do(i)
		})
	}
	calls.Wait()
	if len(panics) > 0 {
		panic(<-panics)
	}
}

// A guard is in use while a function runs under it, for example the function of [Manager.Do], an
// election, a loop, a schedule or a queue. See [internals.Use]. Close ends the guard, but does not
// release its lock before the function has returned.

// use marks the guard as in use until the returned function is called. The caller must then check
// h.err, and must not start its function if the guard has ended. So Close waits for the function,
// or the function does not start.
func (h *holding) use() (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uses++
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.uses--
		if h.returned != nil {
			close(h.returned)
			h.returned = nil
		}
	})
}

// busy returns nil if no function runs under the guard. Otherwise it returns a channel that is
// closed when a function returns. A function that called Close with its own context is ignored,
// because its call of Close gives up the lock.
func (h *holding) busy(closing context.Context) <-chan struct{} {
	own := 0
	if slices.Contains(owned(closing, h.request.Name), h) {
		own = 1
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.uses <= own {
		return nil
	}
	if h.returned == nil {
		h.returned = make(chan struct{})
	}
	return h.returned
}

func inUse(closing context.Context, holds []*holding) (used, free []*holding) {
	for _, h := range holds {
		if h.busy(closing) != nil {
			used = append(used, h)
		} else {
			free = append(free, h)
		}
	}
	return used, free
}

// releaseInUse releases each guard when the functions under it have returned. It waits until ctx
// ends, or for one CommandTimeout if ctx has no deadline. After that, a lock whose function still
// runs stays held until a takeover. The error names these locks.
func (m *Manager) releaseInUse(ctx context.Context, holds []*holding) error {
	waiting := ctx
	if _, bounded := ctx.Deadline(); !bounded {
		limited, done := m.within(ctx, m.cfg.CommandTimeout)
		defer done()
		waiting = limited
	}
	var waits sync.WaitGroup
	left := make([]string, len(holds)) // names of the locks that are still in use
	for i, h := range holds {
		waits.Go(func() {
			for returned := h.busy(ctx); returned != nil; returned = h.busy(ctx) {
				select {
				case <-returned:
				case <-waiting.Done():
					left[i] = quoted(h.request.Name)
					return
				}
			}
			m.releaseAtClose(ctx, h)
		})
	}
	waits.Wait()
	left = slices.DeleteFunc(left, func(name string) bool { return name == "" })
	if len(left) == 0 {
		return nil
	}
	slices.Sort(left)
	const shown = 10
	n, more := len(left), ""
	if n > shown {
		left, more = left[:shown], fmt.Sprintf(", %d more", n-shown)
	}
	return fmt.Errorf("functions still run under %d locks, which stay held until they are taken "+
		"over: %s%s: %w", n, strings.Join(left, ", "), more, context.Cause(waiting))
}
