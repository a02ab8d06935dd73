package distlock

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// A guard is in use while a function runs under it that was called for it: by [Manager.Do], by an
// election, a loop, a schedule or a queue, see [leading.Seam]. Close ends it, as all others, but
// does not release its lock before the function has returned.

// use notes that a function is about to run under the guard, in this goroutine, until done is
// called. Ask whether the guard is trusted after it, not before: then either Close sees the
// function, or the function never begins.
func (h *holding) use() (done func()) {
	h.caller.Store(goroutine())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uses++
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.uses--; h.uses == 0 && h.unused != nil {
			close(h.unused)
			h.unused = nil
		}
	})
}

// idle returns a channel that is closed when no function runs under the guard; nil when none does.
func (h *holding) idle() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.uses > 0 && h.unused == nil {
		h.unused = make(chan struct{})
	}
	return h.unused
}

// runs reports whether a function runs under the guard that can be waited for. One that closes the
// Manager itself has given its lock up by that, as by Release.
func (h *holding) runs(self int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.uses > 1 || h.uses == 1 && h.caller.Load() != self
}

// inUse parts the guards under which a function runs from the others.
func inUse(holds []*holding) (used, free []*holding) {
	self := goroutine()
	for _, h := range holds {
		if h.runs(self) {
			used = append(used, h)
		} else {
			free = append(free, h)
		}
	}
	return used, free
}

// goroutine returns the number of the goroutine that calls it, which Go shows nowhere else.
func goroutine() (n int64) {
	text := make([]byte, 64)
	_, _ = fmt.Sscanf(string(text[:runtime.Stack(text, false)]), "goroutine %d ", &n)
	return n
}

// releaseInUse releases the guards as the functions under them return, and says under which ones
// they still run when ctx ends: those stay held, so that nobody works beside them, until the
// takeover rule says that this process is silent.
func (m *Manager) releaseInUse(ctx context.Context, holds []*holding) error {
	var waits sync.WaitGroup
	left := make([]string, len(holds)) // the names of those
	for i, h := range holds {
		waits.Go(func() {
			for idle := h.idle(); idle != nil; idle = h.idle() {
				select {
				case <-idle:
				case <-ctx.Done():
					left[i] = quoted(h.session.Name)
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
	return fmt.Errorf("functions still run under %d locks, which stay held until they are taken over: %s%s: %w",
		n, strings.Join(left, ", "), more, context.Cause(ctx))
}
