package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
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
		older := a.queueCtx(ga.Context(), "b", distlock.Why("wants b"))
		time.Sleep(100 * time.Millisecond)
		younger := b.queue("a", distlock.Why("wants a"), distlock.Holding(gb))
		got := <-younger
		d := wantDeadlock(t, got.err)
		if got.after < time.Second || got.after > 2*time.Second {
			t.Errorf("told after %v, want a second", got.after)
		}
		text := strings.Join(d.Chain, "\n")
		for _, part := range []string{
			`"a"`, `"b"`, "wants a", "wants b", "first", a.Process(), b.Process(),
		} {
			if !strings.Contains(text, part) {
				t.Errorf("the chain does not name %s:\n%s", part, text)
			}
		}
		if len(d.Chain) != 2 {
			t.Errorf("chain %q", d.Chain)
		}
		w.wantWaiting(older)
		w.release(gb)
		w.release(w.wantTurn(older))
		w.release(ga)
	})
}

// Three in a circle, known by the contexts: exactly one is told.
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
		if len(d.Chain) != 3 {
			t.Errorf("chain %q", d.Chain)
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

// Tries to break: who waits for a place in a full line counts as well, the first of its process and
// one behind it, though the line does not show that it waits. It holds what somebody wants who is
// told within five seconds, however long it has waited itself.
func TestDeadlock_OutsideOfAFullLine_IsTold(t *testing.T) {
	for _, c := range []struct {
		name    string
		own     bool // the line is that of its own process
		behind  int  // how many of its process wait outside before it
		options []distlock.Option
	}{
		{name: "another process fills the line"},
		{name: "its own does", own: true},
		{name: "behind others", behind: 2},
		{name: "a reader", options: []distlock.Option{distlock.Shared()}},
	} {
		runInBubble(t, c.name, func(t *testing.T, w *world) {
			a, l, b := w.start(nil), w.start(nil), w.start(nil)
			if c.own {
				l = b
			}
			hot, held := a.mustTry("hot"), b.mustTry("held")
			left := w.fill(l, "hot")
			before := w.stand(b, "hot", c.behind, nil)
			outside := b.queueCtx(held.Context(), "hot", append(c.options, distlock.Why("outside"))...)
			time.Sleep(40 * time.Second)
			inside := a.queueCtx(hot.Context(), "held", distlock.WaitAtMost(time.Hour))
			start := time.Now()
			d := wantDeadlock(t, (<-inside).err)
			if took := time.Since(start); took > toldAtMost {
				t.Errorf("told after %v, want at most %v", took, toldAtMost)
			}
			if text := strings.Join(d.Chain, "\n"); !strings.Contains(text, "outside") {
				t.Errorf("the chain does not name it:\n%s", text)
			}
			w.wantWaiting(outside)
			left()
			before()
			w.release(hot)
			w.release(w.wantTurn(outside))
			w.release(held)
		})
	}
}

// Tries to break: nobody outside of a full line is told as long as those before him go on, whatever
// he holds; and it is one search for all of a process.
func TestDeadlock_OutsideOfAFullLine_NoCircle_NobodyIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, l, b := w.start(nil), w.start(nil), w.start(nil)
		hot := a.mustTry("hot")
		left := w.fill(l, "hot")
		var outside []<-chan turn
		for _, name := range []string{"one", "two", "three"} {
			held := b.mustTry(name)
			outside = append(outside, b.queueCtx(held.Context(), "hot"),
				a.queue(name, distlock.WaitAtMost(time.Hour)))
		}
		before := b.store.Count(fault.WaitedUnder)
		time.Sleep(10 * time.Minute)
		for _, done := range outside {
			w.wantWaiting(done)
		}
		if n := b.store.Count(fault.Waiting); n > 0 {
			t.Errorf("%d times all lines were read", n)
		}
		if n := b.store.Count(fault.WaitedUnder) - before; n < 10 || n > 40 {
			t.Errorf("%d searches in ten minutes", n)
		}
		w.release(hot)
		left()
		for i := 0; i < len(outside); i += 2 {
			w.release(w.wantTurn(outside[i]))
			w.release(b.Kept[i/2])
			w.release(w.wantTurn(outside[i+1]))
		}
	})
}

// Tries to break: all that a caller holds counts, however much it is.
func TestDeadlock_HoldsManyLocks_IsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("name %03d", i))
		}
		all := assert.Value(a.LockAll(t.Context(), names))(t)
		z := b.mustTry("z")
		older := b.queueCtx(z.Context(), names[0])
		time.Sleep(time.Second)
		wantDeadlock(t, (<-a.queueCtx(all.Context(), "z", distlock.WaitAtMost(time.Hour))).err)
		assert.Must(t, all.Release())
		w.release(w.wantTurn(older))
		w.release(z)
	})
}

// The plainest circle: who waits for what it holds itself is told at once and without a command, in
// every mode in which the two do not go together.
func TestDeadlock_WithItself_IsToldAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		shared, permit := distlock.Shared(), distlock.Permits(2)
		g, reader := p.mustTry("g", distlock.Why("mine")), p.mustTry("reader", shared)
		one, two := p.mustTry("p", permit), p.mustTry("p", permit)
		inner := assert.Value(g.Reenter())(t)
		deeper := p.mustTry("deeper")
		in, err := p.Lock("in").TryLock(g.Context())
		assert.Must(t, err)
		before, start := p.store.Total(), time.Now()
		ask := func(ctx context.Context, name string, opts ...distlock.Option) {
			t.Helper()
			_, err := p.Lock(name).Lock(ctx, opts...)
			d := wantDeadlock(t, err)
			if len(d.Chain) != 1 || !strings.Contains(err.Error(), "Reenter") {
				t.Errorf("the error says %v", err)
			}
		}
		ask(g.Context(), "g")
		ask(inner.Context(), "g", shared, distlock.WaitAtMost(time.Hour))
		ask(in.Context(), "g")
		ask(t.Context(), "g", distlock.Holding(deeper, g))
		ask(reader.Context(), "reader")
		ask(t.Context(), "p", permit, distlock.Holding(one, two))
		_, err = p.LockAll(g.Context(), []string{"a", "g"})
		wantDeadlock(t, err)
		wantDeadlock(t, p.Lock("g").LockInTransaction(g.Context()))
		err = p.Do(g.Context(), "g", func(context.Context, *distlock.TryGuard) error { return nil })
		wantDeadlock(t, err)
		if n := p.store.Total() - before; n != 0 || time.Since(start) != 0 {
			t.Errorf("%d commands and %v", n, time.Since(start))
		}
		w.release(w.wantTurn(p.queueCtx(reader.Context(), "reader", shared))) // the two go together
		w.release(two)
		w.release(w.wantTurn(p.queueCtx(one.Context(), "p", permit)))
		_, err = p.LockAll(t.Context(), []string{"a", "in"}, distlock.Holding(g, in))
		wantDeadlock(t, err)
		_, err = p.Lock("g").Lock(g.Context(), distlock.Holding(), distlock.WaitAtMost(time.Minute))
		wantErr(t, err, distlock.ErrHeld) // it says that another goroutine holds it
		_, err = p.Lock("g").Lock(g.Context(), distlock.WaitAtMost(0))
		wantErr(t, err, distlock.ErrHeld) // it does not wait
	})
}

// A guard that was released or lost while its context still is in use is not held: nobody is told
// of a circle through it.
func TestDeadlock_GuardIsOver_DoesNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, b := w.start(nil), w.start(nil)
		released, broken := p.mustTry("released"), p.mustTry("broken")
		w.release(released)
		assert.Must(t, b.Break(t.Context(), "broken", broken.Fence(), "test"))
		time.Sleep(2 * pingTime)
		for _, g := range []*distlock.TryGuard{released, broken} {
			ctx := context.WithoutCancel(g.Context())
			w.release(w.wantTurn(p.queueCtx(ctx, g.Name())))
			w.release(w.wantTurn(p.queue(g.Name(), distlock.Holding(g))))
		}
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

// A permit comes back from any of its holders, so a circle through one of two is no deadlock;
// through both it is.
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

// Two holders of a want b and two of b want a, all of them permits. Each lock has
// another holder that could leave, but for its waiting: one is told, and the rest come through.
func TestDeadlock_PermitsCrosswise_OneIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		two := distlock.Permits(2)
		type caller struct {
			guard *distlock.TryGuard
			turn  <-chan turn
		}
		var callers []caller
		for i := range 4 {
			name := []string{"a", "b"}[i%2]
			p := w.start(nil)
			callers = append(callers, caller{guard: p.mustTry(name, two)})
		}
		for i := range callers {
			time.Sleep(10 * time.Millisecond)
			other := []string{"b", "a"}[i%2]
			callers[i].turn = w.start(nil).queueCtx(callers[i].guard.Context(), other, two)
		}
		got := <-callers[3].turn
		d := wantDeadlock(t, got.err)
		if !strings.Contains(strings.Join(d.Chain, " "), "holds one of 2 permits") {
			t.Errorf("chain %q", d.Chain)
		}
		if got.after > 2*time.Second {
			t.Errorf("told after %v", got.after)
		}
		for i := range 3 {
			w.wantWaiting(callers[i].turn)
		}
		time.Sleep(time.Hour) // the one that was told still holds: it may let go any time
		for i := range 3 {
			w.wantWaiting(callers[i].turn)
		}
		w.release(callers[3].guard) // of b: the first in line for it is the first caller
		for _, i := range []int{0, 1, 2} {
			w.release(w.wantTurn(callers[i].turn))
			w.release(callers[i].guard)
		}
	})
}

// Callers of two processes that hold and wait crosswise, of whom nothing is known: nobody is told,
// and nobody looks. What they hold may be another goroutine's.
func TestDeadlock_NothingIsSaid_NobodyIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		ctx, cancel := context.WithCancel(context.Background())
		ga := a.mustTry("a")
		gb := b.mustTry("b")
		turns := []<-chan turn{a.queueCtx(ctx, "b"), b.queueCtx(ctx, "a")}
		time.Sleep(24 * time.Hour)
		for _, done := range turns {
			w.wantWaiting(done)
		}
		// One of them says what it holds: the other one does not, and is not presumed to.
		third := a.queueCtx(ctx, "b", distlock.Holding(ga))
		time.Sleep(time.Hour)
		w.wantWaiting(third)
		assert.Equal(t, b.store.Count(fault.Waiting), 0,
			"%d searches by one of whom nothing is known, want %d")
		cancel()
		for _, done := range append(turns, third) {
			wantErr(t, (<-done).err, context.Canceled)
		}
		w.release(ga)
		w.release(gb)
	})
}

// The other one in the circle has died. It needs nobody to give up: it is taken out by the takeover
// rule, and the living one goes on.
func TestDeadlock_OtherIsDead_IsTakenOverInstead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, dead := w.start(nil), w.start(nil)
		ga, gd := a.mustTry("a"), dead.mustTry("d")
		lost := dead.queueCtx(gd.Context(), "a")
		dead.kill()
		time.Sleep(2*pingTime + time.Minute)
		g := w.wantTurn(a.queueCtx(ga.Context(), "d"))
		if g.TakeoverEvidence() == "" {
			t.Error("it was not taken over")
		}
		w.release(g)
		w.release(ga)
		_ = dead.Close(context.Background())
		<-lost
	})
}

// Who holds nothing while it waits is in no circle, and its process reads no lines.
func TestDeadlock_HoldsNothing_NoSearch(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a")
		done := b.queue("a")
		time.Sleep(time.Hour)
		assert.Equal(t, b.store.Count(fault.Waiting), 0, "%d searches, want %d")
		w.release(g)
		w.release(w.wantTurn(done))
	})
}

// thenCall is a store that calls after when the lines have been read.
type thenCall struct {
	catalog.Catalog
	after func()
}

func (c *thenCall) WaitedUnder(ctx context.Context, processes []string, held []bson.ObjectID) (
	map[string]catalog.Snapshot, error,
) {
	rows, err := c.Catalog.WaitedUnder(ctx, processes, held)
	c.after()
	return rows, err
}

// Somebody else gives up while the lines are read: there was a circle, and there is none. Nobody is
// told.
func TestDeadlock_BrokenWhileItIsRead_NobodyIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		var store *thenCall
		b := w.start(func(c *distlock.Config) {
			store = &thenCall{c.Catalog, func() {}}
			c.Catalog = store
		})
		ga, gb := a.mustTry("a"), b.mustTry("b")
		ctx, cancel := context.WithCancel(ga.Context())
		older := a.queueCtx(ctx, "b")
		time.Sleep(time.Millisecond)
		var reads atomic.Int32 // by the search
		store.after = func() {
			if reads.Add(1) == 1 {
				cancel()
				wantErr(t, (<-older).err, context.Canceled)
				synctest.Wait() // its place is given up in the background
			}
		}
		younger := b.queueCtx(gb.Context(), "a")
		time.Sleep(time.Minute)
		w.wantWaiting(younger)
		if n := reads.Load(); n < 2 {
			t.Errorf("%d readings", n)
		}
		w.release(ga)
		w.release(w.wantTurn(younger))
		w.release(gb)
	})
}
