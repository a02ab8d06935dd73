package distlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/fault"
)

func wantDeadlock(t *testing.T, err error) *distlock.DeadlockError {
	t.Helper()
	var d *distlock.DeadlockError
	if !errors.As(err, &d) || !errors.Is(err, distlock.ErrDeadlock) {
		t.Fatalf("error is %v, want a *DeadlockError", err)
	}
	return d
}

// Two processes hold one lock each and want the other's: the one that came last is told after a
// second, the other goes on.
func TestDeadlock_TwoProcesses_YoungestIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		ga, gb := a.mustTry("a", distlock.Why("first")), b.mustTry("b")
		older := a.queue("b", distlock.Why("wants b"))
		time.Sleep(100 * time.Millisecond)
		younger := b.queue("a", distlock.Why("wants a"))
		got := <-younger
		d := wantDeadlock(t, got.err)
		if got.after < time.Second || got.after > 2*time.Second {
			t.Errorf("told after %v, want a second", got.after)
		}
		text := strings.Join(d.Chain, "\n")
		for _, part := range []string{`"a"`, `"b"`, "wants a", "wants b", "first", a.Process(), b.Process()} {
			if !strings.Contains(text, part) {
				t.Errorf("the chain does not name %s:\n%s", part, text)
			}
		}
		if len(d.Chain) != 2 || !d.Presumed {
			t.Errorf("chain %q, presumed %v", d.Chain, d.Presumed)
		}
		w.wantWaiting(older)
		w.release(gb)
		w.release(w.wantTurn(older))
		w.release(ga)
	})
}

// Three in a circle, known by the contexts: exactly one is told, and nothing is presumed.
func TestDeadlock_CircleOfThreeByContexts_OneIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		names := []string{"a", "b", "c"}
		var turns []<-chan turn
		var guards []*distlock.TryGuard
		for _, name := range names {
			p := w.start(nil)
			p.mustTry("other " + name) // it holds more, and not this call
			guards = append(guards, p.mustTry(name))
		}
		for i, g := range guards {
			time.Sleep(10 * time.Millisecond)
			p := w.start(nil) // a Manager of its own: the context tells what is held
			turns = append(turns, p.queueCtx(g.Context(), names[(i+1)%3]))
		}
		d := wantDeadlock(t, (<-turns[2]).err)
		if len(d.Chain) != 3 || d.Presumed {
			t.Errorf("chain %q, presumed %v", d.Chain, d.Presumed)
		}
		time.Sleep(time.Minute)
		w.wantWaiting(turns[0])
		w.wantWaiting(turns[1])
		w.release(guards[2])
		w.release(w.wantTurn(turns[1]))
		w.release(guards[1])
		w.release(w.wantTurn(turns[0]))
		w.release(guards[0])
	})
}

// Who waits for a lock with the context of its own guard is told so.
func TestDeadlock_WithItself_IsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		got := <-p.queueCtx(g.Context(), "a")
		if d := wantDeadlock(t, got.err); len(d.Chain) != 1 {
			t.Errorf("chain %q", d.Chain)
		}
		w.release(g)
	})
}

// A reader waits behind a writer that waits for the reader's own first lock.
func TestDeadlock_BehindAWriter_IsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a", distlock.Shared())
		writer := b.queue("a")
		time.Sleep(time.Millisecond)
		d := wantDeadlock(t, (<-a.queueCtx(g.Context(), "a", distlock.Shared())).err)
		if !strings.Contains(strings.Join(d.Chain, " "), "waits before it") {
			t.Errorf("chain %q", d.Chain)
		}
		w.release(g)
		w.release(w.wantTurn(writer))
	})
}

// A permit comes back from any of its holders, so a circle through one of two is no deadlock; through
// both it is.
func TestDeadlock_Permits_AllHoldersMustBeStuck(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		one, two := a.mustTry("p", distlock.Permits(2)), b.mustTry("p", distlock.Permits(2))
		g := c.mustTry("c")
		first := a.queueCtx(one.Context(), "c")
		time.Sleep(time.Millisecond)
		ctx, cancel := context.WithCancel(g.Context())
		third := c.queueCtx(ctx, "p", distlock.Permits(2))
		time.Sleep(time.Minute)
		w.wantWaiting(third)
		cancel()
		wantErr(t, (<-third).err, context.Canceled)
		second := b.queueCtx(two.Context(), "c")
		time.Sleep(time.Millisecond)
		wantDeadlock(t, (<-c.queueCtx(g.Context(), "p", distlock.Permits(2))).err)
		w.release(g)
		w.release(w.wantTurn(first))
		w.release(w.wantTurn(second))
		w.release(one)
		w.release(two)
	})
}

// What is no deadlock is not called one: independent goroutines of two processes, callers who say
// what they hold, and waiters for one lock.
func TestDeadlock_NoCircle_NobodyIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		ga, gb := a.mustTry("a"), b.mustTry("b")
		none := []<-chan turn{
			a.queue("b", distlock.Holding()), // another goroutine holds a, and will release it
			b.queue("a", distlock.Holding()),
			a.queue("a"), a.queue("a"), b.queue("b"),
		}
		time.Sleep(10 * time.Minute)
		for _, done := range none {
			w.wantWaiting(done)
		}
		w.release(ga)
		w.release(gb)
		for len(none) > 0 {
			synctest.Wait()
			for i, done := range none {
				select {
				case got := <-done:
					if got.err != nil {
						t.Fatal(got.err)
					}
					w.release(got.guard)
					none = append(none[:i:i], none[i+1:]...)
				default:
					continue
				}
				break
			}
		}
	})
}

// Two goroutines of each of two processes hold and wait crosswise: nothing is presumed, since more
// than one call of each process waits.
func TestDeadlock_SeveralWaitingCalls_NothingIsPresumed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		ctx, cancel := context.WithCancel(context.Background())
		for _, p := range []*proc{a, b} {
			for _, name := range []string{"x", "y"} {
				p.mustTry(name + p.Process())
			}
		}
		var turns []<-chan turn
		for _, name := range []string{"x", "y"} {
			turns = append(turns, a.queueCtx(ctx, name+b.Process()))
		}
		time.Sleep(10 * time.Millisecond)
		for _, name := range []string{"x", "y"} {
			turns = append(turns, b.queueCtx(ctx, name+a.Process()))
		}
		time.Sleep(10 * time.Minute)
		for _, done := range turns {
			w.wantWaiting(done)
		}
		cancel()
		for _, done := range turns {
			wantErr(t, (<-done).err, context.Canceled)
		}
	})
}

// Who holds nothing while it waits is in no circle, and its process reads no lines.
func TestDeadlock_HoldsNothing_NoSearch(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a")
		done := b.queue("a")
		time.Sleep(time.Hour)
		if n := b.store.Count(fault.Waiting); n != 0 {
			t.Errorf("%d searches", n)
		}
		w.release(g)
		w.release(w.wantTurn(done))
	})
}
