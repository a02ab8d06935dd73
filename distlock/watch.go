package distlock

import (
	"fmt"
	"sync"
	"time"
)

// A watcher reads all locks that callers of this process watch, with one command.
type watcher struct {
	m     *Manager
	begin sync.Once     // starts run
	wake  chan struct{} // one element when a name has no snapshot yet

	mu      sync.Mutex // guards the fields below
	names   map[string]*watched
	changed chan struct{} // closed by the next read with a change
}

type watched struct {
	callers int
	current *snapshot // nil before the first read
}

// A snapshot is the result of one read of a lock: the holder, nil for a free lock, or an error.
type snapshot struct {
	info *LockInfo
	err  error
}

func newWatcher(m *Manager) *watcher {
	return &watcher{
		m: m, names: map[string]*watched{}, wake: make(chan struct{}, 1), changed: make(chan struct{}),
	}
}

// holder returns a copy of the holder that the caller may keep, or nil.
func (s *snapshot) holder() *LockInfo {
	if s.info == nil {
		return nil
	}
	info := *s.info
	return &info
}

// same reports whether s and next show the same state. Two errors count as the same state.
func (s *snapshot) same(next *snapshot) bool {
	switch {
	case s == nil || s.err != nil || next.err != nil:
		return s != nil && s.err != nil && next.err != nil
	case s.info == nil || next.info == nil:
		return s.info == next.info
	}
	a, b := s.info, next.info
	return a.Session == b.Session && a.Process == b.Process && a.Fence == b.Fence &&
		a.YieldBy == b.YieldBy && a.YieldWhy == b.YieldWhy
}

// enter adds a caller. The first caller of a name causes an immediate read.
func (w *watcher) enter(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.names[name] == nil {
		w.names[name] = &watched{}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	w.names[name].callers++
	w.begin.Do(func() { w.m.loops.Go(w.run) }) // ends with Close
}

func (w *watcher) leave(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.names[name]
	if one.callers--; one.callers == 0 {
		delete(w.names, name)
	}
}

// current returns the current snapshot of a name, or nil before the first read. The channel is
// closed when the snapshot of any name changes.
func (w *watcher) current(name string) (*snapshot, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.names[name].current, w.changed
}

func (w *watcher) run() {
	pause := func() time.Duration { return w.m.pinger.Jitter(w.m.cfg.PollMax, 0.2) }
	timer := w.m.cfg.Clock.NewTimer(pause())
	defer timer.Stop()
	for {
		select {
		case <-timer.C():
			timer.Reset(pause())
			w.read(true)
		case <-w.wake:
			w.read(false)
		case <-w.m.closed:
			return
		}
	}
}

// read reads the locks of all names. Unless all is set, it reads only the names without a snapshot.
func (w *watcher) read(all bool) {
	var names []string
	w.mu.Lock()
	for name, one := range w.names {
		if all || one.current == nil {
			names = append(names, name)
		}
	}
	w.mu.Unlock()
	if len(names) == 0 {
		return
	}
	ctx, done := w.m.within(w.m.life, w.m.cfg.CommandTimeout)
	defer done()
	read, err := w.m.locks.Snapshots(ctx, names)
	inspector := w.m.Inspector()
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := false
	for _, name := range names {
		next, lock := &snapshot{}, read[name]
		switch {
		case err != nil:
			next.err = fmt.Errorf("distlock: watch: %w", err)
		case lock.LockErr != nil:
			next.err = fmt.Errorf("distlock: watch: %w", lock.LockErr)
		case lock.Lock != nil && lock.Lock.Held:
			next.info = &inspector.holders(lock)[0]
		}
		if one := w.names[name]; one != nil && !one.current.same(next) {
			one.current, changed = next, true
		}
	}
	if changed {
		close(w.changed)
		w.changed = make(chan struct{})
	}
}
