package integration_test

import (
	"syscall"
	"testing"
	"time"

	"mongodlm/catalog"
)

// waitsInLine waits until a process stands in the line of a lock.
func (w *world) waitsInLine(t testing.TB, name, process string) {
	t.Helper()
	eventually(t, turnLimit, process+" stands in the line", func() bool {
		return w.standsInLine(t, name, process)
	})
}

func (w *world) standsInLine(t testing.TB, name, process string) bool {
	t.Helper()
	for _, p := range w.lock(t, name).Waiters {
		if p.Process == process {
			return true
		}
	}
	return false
}

// The first in line is stopped past its deadline and granted the lock meanwhile; nobody is there to
// take it over. When it goes on it does not use that grant: it has another session's, of a later
// fence.
func TestFaults_WaiterStopped_OldGrantIsNotUsed(t *testing.T) {
	t.Parallel()
	forThese(t, processed, func(t *testing.T, w *world) {
		name := w.name("balancer")
		holder := w.start(t, calm)
		g := w.mustTry(t, holder, name)
		first := w.bear(t, nil)
		process := first.ask(order{Do: "who"}).Process
		first.tell(order{Do: "lock", Name: name})
		w.waitsInLine(t, name, process)
		w.stopPastDeadline(t, first, process)
		wantReleased(t, g)
		l := w.lock(t, name)
		if l.Process != process || l.Fence != g.Fence()+1 {
			t.Fatalf("not granted to the one that is stopped: %+v", l)
		}
		first.signal(syscall.SIGCONT)
		a := first.hear()
		if a.Err != "" || a.Fence <= l.Fence {
			t.Errorf("it came back with %+v, want a fence above %d", a, l.Fence)
		}
		if r := first.ask(order{Do: "release"}); r.Err != "" {
			t.Errorf("Release: %+v", r)
		}
		w.wantFreed(t, name)
	})
}

// stopPastDeadline stops a child until nothing that it holds can be trusted any more.
func (w *world) stopPastDeadline(t testing.TB, r *relative, process string) {
	t.Helper()
	r.signal(syscall.SIGSTOP)
	injected.add(w.d.name, "SIGSTOP", "waiting")
	eventually(t, turnLimit, "its last ping is older than its takeover time", func() bool {
		last := w.document(t, catalog.PingsCollection, process).Lookup("ping").Time()
		return w.now(t).Sub(last) > 5*time.Second // of 4, and what a ping takes
	})
}
