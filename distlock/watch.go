package distlock

import (
	"fmt"
	"sync"
	"time"

	"mongodlm/internal/clock"
)

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
