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

// The first in line is killed. Those behind it pass it over when it has missed two pings, while the
// holder lives on; it is not condemned for that, and the next has its turn with the release.
func TestFaults_FirstInLineKilled_IsPassedOver(t *testing.T) {
	t.Parallel()
	forThese(t, processed, func(t *testing.T, w *world) {
		name := w.name("balancer")
		holder, m := w.start(t, calm), w.start(t, shortTakeover)
		g := w.mustTry(t, holder, name)
		first := w.bear(t, nil)
		process := first.ask(order{Do: "who"}).Process
		first.tell(order{Do: "lock", Name: name})
		w.waitsInLine(t, name, process)
		second := w.queue(t, m, name)
		first.signal(syscall.SIGKILL)
		for range first.answers { // until it has gone
		}
		injected.add(w.d.name, "SIGKILL", "waiting")
		eventually(t, turnLimit, "the dead one is taken out of the line", func() bool {
			return !w.standsInLine(t, name, process)
		})
		ping := w.document(t, catalog.PingsCollection, process)
		if _, err := ping.LookupErr("condemned"); err == nil {
			t.Errorf("who only waited is condemned: %v", ping)
		}
		if err := g.Verify(t.Context()); err != nil {
			t.Errorf("the living holder: %v", err)
		}
		wantWaiting(t, second)
		wantReleased(t, g)
		next := wantTurn(t, second)
		if next.Fence() != g.Fence()+1 {
			t.Errorf("fence %d after %d: the dead one had a turn", next.Fence(), g.Fence())
		}
		wantReleased(t, next)
	})
}

// Holder and first in line are killed together: the next takes both out of the way.
func TestFaults_HolderAndFirstInLineKilled_NextHasIt(t *testing.T) {
	t.Parallel()
	forThese(t, processed, func(t *testing.T, w *world) {
		name := w.name("balancer")
		holder, first := w.bear(t, nil), w.bear(t, nil)
		a := holder.ask(order{Do: "lock", Name: name})
		if a.Err != "" {
			t.Fatal(a.Err)
		}
		process := first.ask(order{Do: "who"}).Process
		first.tell(order{Do: "lock", Name: name})
		w.waitsInLine(t, name, process)
		second := w.queue(t, w.start(t, shortTakeover), name)
		for _, r := range []*relative{holder, first} {
			r.signal(syscall.SIGKILL)
			for range r.answers {
			}
			injected.add(w.d.name, "SIGKILL", "waiting")
		}
		next := wantTurn(t, second)
		if next.Fence() <= a.Fence || next.TakeoverEvidence() == "" {
			t.Errorf("fence %d after %d, taken over %q", next.Fence(), a.Fence, next.TakeoverEvidence())
		}
		wantReleased(t, next)
	})
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

// The same, and another is there that takes the lock over: the one that was stopped waits for its
// turn when it goes on, and touches nothing of the new holder's.
func TestFaults_WaiterStoppedAndOvertaken_WaitsAgain(t *testing.T) {
	t.Parallel()
	forThese(t, processed, func(t *testing.T, w *world) {
		name := w.name("balancer")
		holder, m := w.start(t, calm), w.start(t, shortTakeover)
		g := w.mustTry(t, holder, name)
		first := w.bear(t, nil)
		process := first.ask(order{Do: "who"}).Process
		first.tell(order{Do: "lock", Name: name})
		w.waitsInLine(t, name, process)
		w.stopPastDeadline(t, first, process)
		wantReleased(t, g)
		next := w.wait(t, m, name)
		if next.TakeoverEvidence() == "" || next.Fence() != g.Fence()+2 {
			t.Errorf("fence %d, taken over %q", next.Fence(), next.TakeoverEvidence())
		}
		first.signal(syscall.SIGCONT)
		eventually(t, turnLimit, "it stands in the line as another process", func() bool {
			line := w.lock(t, name).Waiters
			return len(line) == 1 && line[0].Process != process
		})
		if err := next.Verify(t.Context()); err != nil {
			t.Errorf("the holder: %v", err)
		}
		wantReleased(t, next)
		if a := first.hear(); a.Err != "" || a.Fence <= next.Fence() {
			t.Errorf("it came back with %+v, want a fence above %d", a, next.Fence())
		}
		first.ask(order{Do: "release"})
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
