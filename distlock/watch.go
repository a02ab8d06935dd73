package distlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
	"mongodlm/internal/leading"
)

func init() {
	leading.Provide(leading.Seam[*DistributedLock, *TryGuard, *LockInfo]{
		Watch: func(ctx context.Context, l *DistributedLock) iter.Seq2[*LockInfo, error] {
			return l.watch(ctx)
		},
		RequestYield: func(ctx context.Context, l *DistributedLock, why string) error {
			return l.requestYield(ctx, why)
		},
		PutFirst: func(ctx context.Context, g *TryGuard, waiter bson.ObjectID) error {
			return g.putFirst(ctx, waiter)
		},
		Standby: func(l *DistributedLock) *DistributedLock { return &DistributedLock{l.m, l.name, true} },
		Use:     func(g *TryGuard) func() { return g.h.use() },
	})
}

// watch is Watch of [leading.Seam].
func (l *DistributedLock) watch(ctx context.Context) iter.Seq2[*LockInfo, error] {
	return func(yield func(*LockInfo, error) bool) {
		fail := func(err error) { yield(nil, failedTo("watch", l.name, err)) }
		if err := checkName(l.name); err != nil {
			yield(nil, err)
			return
		}
		if err := usable(ctx); err != nil {
			fail(err)
			return
		}
		if !l.m.watch.enter(l.name) {
			fail(ErrClosed)
			return
		}
		defer l.m.watch.leave(l.name)
		var told *sight
		for {
			now, changed := l.m.watch.see(l.name)
			if now != told {
				told = now
				if !yield(now.copied(), now.err) {
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				fail(context.Cause(ctx))
				return
			case <-l.m.closed:
				fail(ErrClosed)
				return
			}
		}
	}
}

// requestYield is RequestYield of [leading.Seam].
func (l *DistributedLock) requestYield(ctx context.Context, why string) error {
	if err := checkName(l.name); err != nil {
		return err
	}
	if problem := catalog.BadText(why, maxWhy); problem != "" {
		return fmt.Errorf("%w: why %s", ErrBadOption, problem)
	}
	err := usable(ctx)
	if err == nil && clock.Over(l.m.closed) {
		err = ErrClosed
	}
	if err == nil {
		ctx, done := l.m.whileOpen(ctx)
		defer done()
		request := transition.RequestYield{Name: l.name, By: l.m.Process(), Why: why}
		_, _, err = l.m.locks.Apply(ctx, request)
	}
	return changing("request the yield of", l.name, err, leading.ErrNotHeld)
}

// putFirst is PutFirst of [leading.Seam].
func (g *TryGuard) putFirst(ctx context.Context, waiter bson.ObjectID) error {
	if err := g.Err(); err != nil {
		return err
	}
	name := g.h.session.Name
	if g.h.mode != catalog.Exclusive {
		return fmt.Errorf("%w: the guard of %s is shared or a permit; its release lets nobody in alone",
			ErrBadOption, quoted(name))
	}
	err := usable(ctx)
	if err == nil {
		var done func()
		ctx, done = g.h.m.whileOpen(ctx)
		defer done()
		if done, err = g.h.apart(ctx); err == nil {
			defer done()
			_, _, err = g.h.m.locks.Apply(ctx, transition.PutFirst{Session: g.h.session, To: waiter})
		}
	}
	if errors.Is(err, catalog.ErrNoMatch) {
		if lost := g.h.check(ctx); lost != nil {
			return lost
		}
	}
	return changing("put a waiter first of", name, err, leading.ErrNotInLine)
}

// changing words an error of a change of a lock document; mismatch is what it means that nothing
// matched.
func changing(verb, name string, err, mismatch error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, catalog.ErrNoMatch):
		err = mismatch
	}
	return failedTo(verb, name, err)
}

// A watch reads the locks that callers of this process watch, all in one command.
type watch struct {
	m *Manager

	mu      sync.Mutex // guards the fields below
	names   map[string]*watched
	working bool          // its loop is at work
	wake    chan struct{} // somebody came, or the last one left
}

// watched is one name. The first sight comes with the first reading.
type watched struct {
	callers int
	sight   *sight
	changed chan struct{} // closed when there is another sight
}

// A sight is what one reading showed: the holder, nil when there is none, or an error.
type sight struct {
	info *LockInfo
	err  error
}

// copied returns the holder for one caller to keep.
func (s *sight) copied() *LockInfo {
	if s.info == nil {
		return nil
	}
	info := *s.info
	return &info
}

// same reports whether another sight is no news. Failures of one episode are one.
func (s *sight) same(as *sight) bool {
	switch {
	case s == nil || s.err != nil || as.err != nil:
		return s != nil && s.err != nil && as.err != nil
	case s.info == nil || as.info == nil:
		return s.info == as.info
	}
	a, b := s.info, as.info
	return a.Session == b.Session && a.Process == b.Process && a.Fence == b.Fence &&
		a.YieldBy == b.YieldBy && a.YieldWhy == b.YieldWhy
}

// enter counts a caller in; false when the Manager is being closed.
func (w *watch) enter(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if clock.Over(w.m.closed) {
		return false
	}
	one := w.names[name]
	if one == nil {
		one = &watched{changed: make(chan struct{})}
		w.names[name] = one
		w.signal()
	}
	one.callers++
	if !w.working {
		w.working = true
		w.m.loops.Go(w.run) // ends when nobody watches, or with closed
	}
	return true
}

func (w *watch) leave(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.names[name]
	if one.callers--; one.callers == 0 {
		delete(w.names, name)
	}
	if len(w.names) == 0 {
		w.signal()
	}
}

func (w *watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake
	}
}

// see returns the latest sight, nil before the first, and what is closed when there is another.
func (w *watch) see(name string) (*sight, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.names[name]
	return one.sight, one.changed
}

// run reads all names every PollMax, and those of newcomers at once.
func (w *watch) run() {
	pause := func() time.Duration { return w.m.pinger.Jitter(w.m.cfg.PollMax, 0.2) }
	timer := w.m.cfg.Clock.NewTimer(pause())
	defer timer.Stop()
	for all := true; ; {
		names, over := w.due(all)
		if over {
			return
		}
		if len(names) > 0 {
			w.read(names)
		}
		all = false
		select {
		case <-timer.C():
			timer.Reset(pause())
			all = true
		case <-w.wake:
		case <-w.m.closed:
			return
		}
	}
}

// due returns the names to read. over is true when nobody watches any more: then the loop ends.
func (w *watch) due(all bool) (names []string, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, one := range w.names {
		if all || one.sight == nil {
			names = append(names, name)
		}
	}
	w.working = len(w.names) > 0
	return names, !w.working
}

func (w *watch) read(names []string) {
	ctx, done := w.m.within(w.m.life, w.m.cfg.CommandTimeout)
	defer done()
	seen, err := w.m.locks.Snapshots(ctx, names)
	inspector := w.m.Inspector()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		now := &sight{}
		look := seen[name]
		switch {
		case err != nil:
			now.err = fmt.Errorf("distlock: watch: %w", err)
		case look.LockErr != nil:
			now.err = fmt.Errorf("distlock: watch: %w", look.LockErr)
		case look.Lock != nil && look.Lock.Held:
			now.info = &inspector.holders(look)[0]
		}
		if one := w.names[name]; one != nil && !one.sight.same(now) {
			one.sight = now
			close(one.changed)
			one.changed = make(chan struct{})
		}
	}
}
