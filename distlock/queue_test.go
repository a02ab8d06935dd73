package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/fault"
)

// withoutNotices makes a process ask for its grants, as where there are no change streams.
func (p *proc) withoutNotices() *proc {
	p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
		if call.Op == fault.GrantStream {
			return catalog.ErrNoGrantStream
		}
		return apply()
	})
	return p
}

// a turn is one waiting call of Lock.
type turn struct {
	guard *distlock.TryGuard
	err   error
	after time.Duration
}

// queue calls Lock in the background and waits until it stands in the line.
func (p *proc) queue(name string, opts ...distlock.Option) <-chan turn {
	return p.queueCtx(context.Background(), name, opts...)
}

func (p *proc) queueCtx(ctx context.Context, name string, opts ...distlock.Option) <-chan turn {
	done := make(chan turn, 1)
	start := time.Now()
	go func() {
		g, err := p.Lock(name).Lock(ctx, opts...)
		done <- turn{g, err, time.Since(start)}
	}()
	synctest.Wait()
	return done
}

func (w *world) wantTurn(done <-chan turn) *distlock.TryGuard {
	w.t.Helper()
	got := <-done
	if got.err != nil {
		w.t.Fatalf("Lock: %v", got.err)
	}
	w.t.Cleanup(func() { runtime.KeepAlive(got.guard) })
	return got.guard
}

func (w *world) wantWaiting(done <-chan turn) {
	w.t.Helper()
	synctest.Wait()
	select {
	case got := <-done:
		w.t.Fatalf("it does not wait: %v, %v", got.guard, got.err)
	default:
	}
}

func (w *world) release(g *distlock.TryGuard) {
	w.t.Helper()
	if err := g.Release(); err != nil {
		w.t.Fatalf("Release: %v", err)
	}
	synctest.Wait()
}

// First come, first served, over processes and inside them, with fences that rise, by notices and
// by asking.
func TestLock_ManyProcesses_FirstComeFirstServed(t *testing.T) {
	for _, notices := range []bool{true, false} {
		t.Run(fmt.Sprintf("notices %v", notices), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				holder := w.start(nil)
				g := holder.mustTry("a")
				procs := make([]*proc, 5)
				for i := range procs {
					procs[i] = w.start(nil)
					if !notices {
						procs[i].withoutNotices()
					}
				}
				var turns []<-chan turn
				for i := range 40 {
					turns = append(turns, procs[i*7%5].queue("a"))
					time.Sleep(time.Second)
				}
				last := g.Fence()
				for i, done := range turns {
					w.release(g)
					g = w.wantTurn(done)
					if g.Fence() <= last {
						t.Fatalf("turn %d: fence %d after %d", i, g.Fence(), last)
					}
					last = g.Fence()
					if i+1 < len(turns) {
						w.wantWaiting(turns[i+1])
					}
				}
				w.release(g)
			})
		})
	}
}

// A hand-over costs two commands, entering the line and the release, whatever the number of
// waiters.
func TestLock_HandOver_TwoCommands(t *testing.T) {
	for _, n := range []int{1, 16, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				p := w.start(nil)
				g := p.mustTry("a")
				warm := p.queue("a") // opens the stream of notices
				w.release(g)
				g = w.wantTurn(warm)
				before := p.store.Total() - p.store.Count(fault.Notice) // Next is no command
				var turns []<-chan turn
				for range n {
					turns = append(turns, p.queue("a"))
				}
				for _, done := range turns {
					start := time.Now()
					w.release(g)
					if g = w.wantTurn(done); time.Since(start) != 0 {
						t.Errorf("handed over after %v, want at once", time.Since(start))
					}
				}
				if got := p.store.Total() - before - p.store.Count(fault.Notice); got > 2*n {
					t.Errorf("%d commands for %d hand-overs, want 2 each", got, n)
				}
				w.release(g)
			})
		})
	}
}

// A thousand idle waiters of one process cost what one does, with a stream and without.
func TestLock_ThousandIdleWaiters_CostOfOne(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a thousand waiters take long")
	}
	during := time.Duration(effort.Share(20)) * time.Minute
	count := func(t *testing.T, waiters, names int, notices bool) (commands int) {
		inBubbleAlone(t, func(t *testing.T, w *world) {
			a, b := w.start(nil), w.start(nil)
			if !notices {
				b.withoutNotices()
			}
			for i := range names {
				a.mustTry(fmt.Sprint(i))
			}
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for i := range waiters {
				wg.Go(func() {
					if _, err := b.Lock(fmt.Sprint(i % names)).Lock(ctx); !errors.Is(err, context.Canceled) {
						t.Errorf("waiter %d: %v", i, err)
					}
				})
			}
			time.Sleep(2 * time.Minute)
			before := b.store.Total()
			time.Sleep(during)
			commands = b.store.Total() - before
			cancel()
			wg.Wait()
		})
		return commands
	}
	for _, notices := range []bool{true, false} {
		one, many := count(t, 1, 1, notices), count(t, 1000, 20, notices)
		t.Logf("notices %v: %d commands in %v for one waiter, %d for 1,000 of 20 locks", notices, one, during, many)
		if many > one+one/10+5 {
			t.Errorf("notices %v: %d commands for 1,000 waiters, %d for one", notices, many, one)
		}
	}
}

// A grant is not lost when the stream of notices dies with it or never tells: the question after
// the stream broke, or the look of the next interval, finds it.
func TestLock_NoticesFail_GrantIsFound(t *testing.T) {
	for name, next := range map[string]func(ctx context.Context, apply func() error) error{
		"the stream dies with the notice": func(_ context.Context, apply func() error) error {
			return errors.Join(errors.New("the stream died"), apply())
		},
		"the stream is silent": func(ctx context.Context, _ func() error) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, b := w.start(nil), w.start(nil)
				b.store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
					if call.Op == fault.Notice {
						return next(ctx, apply)
					}
					return apply()
				})
				g := a.mustTry("a")
				done := b.queue("a")
				time.Sleep(10 * time.Second)
				start := time.Now()
				w.release(g)
				g = w.wantTurn(done)
				if took := time.Since(start); took > pingTime+pingTime/10+time.Second {
					t.Errorf("the grant was found after %v, want one interval", took)
				}
				w.release(g)
			})
		})
	}
}

// A waiter that dies in the line is taken out by the takeover rule, and never earlier; those who
// live keep their places.
func TestLock_FirstWaiterDies_EvictedByTheRule(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, dead, b, c := w.start(nil), w.start(nil), w.start(nil), w.start(nil)
		g := a.mustTry("a")
		lost := dead.queue("a")
		second, third := b.queue("a"), c.queue("a")
		time.Sleep(time.Minute)
		dead.kill()
		died := time.Now()
		w.release(g) // granted to the dead one
		if l := w.lock("a"); l.Process != dead.Process() {
			t.Fatalf("held by %q, want the first in line", l.Process)
		}
		g = w.wantTurn(second)
		took := time.Since(died)
		if took < takeoverTime-pingTime-time.Second || took > takeoverTime+2*pingTime {
			t.Errorf("the dead one was evicted after %v, want the takeover time", took)
		}
		if g.TakeoverEvidence() == "" {
			t.Error("the guard knows no evidence of the eviction")
		}
		w.wantWaiting(third)
		w.release(g)
		w.release(w.wantTurn(third))
		_ = dead.Close(context.Background())
		<-lost
	})
}

// A dead waiter in the middle is taken out while the holder lives on, when it has missed two pings.
func TestLock_WaiterInTheMiddleDies_PassedOverWhileHolderLives(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, dead, c := w.start(nil), w.start(nil), w.start(nil)
		g := a.mustTry("a")
		lost, last := dead.queue("a"), c.queue("a")
		dead.kill()
		time.Sleep(pingTime)
		if n := len(w.lock("a").Waiters); n != 2 {
			t.Fatalf("%d wait, want both: nobody has missed two pings", n)
		}
		time.Sleep(3 * pingTime)
		if l := w.lock("a"); len(l.Waiters) != 1 || l.Process != a.Process() {
			t.Errorf("%d wait, %s holds it; want one and the living holder", len(l.Waiters), l.Process)
		}
		w.release(g)
		w.release(w.wantTurn(last))
		_ = dead.Close(context.Background())
		<-lost
	})
}

// The context ends in the instant of the grant: either the guard is handed out, or the next in line
// has the lock at once.
func TestLock_ContextEndsAtTheGrant_NothingIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		for i := range 50 {
			name := fmt.Sprint(i)
			g := a.mustTry(name)
			ctx, cancel := context.WithCancel(context.Background())
			first, second := b.queueCtx(ctx, name), c.queue(name)
			go cancel()
			w.release(g)
			if got := <-first; got.err == nil {
				w.release(got.guard)
			} else {
				wantErr(t, got.err, context.Canceled)
			}
			start := time.Now()
			w.release(w.wantTurn(second))
			if took := time.Since(start); took > pingTime+5*time.Second {
				t.Fatalf("round %d: the next in line waited %v", i, took)
			}
		}
	})
}

// The release was applied and its reply is lost: the next in line has the lock all the same, and
// the second try takes nothing from it.
func TestLock_ReleaseReplyLost_GrantedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		g := a.mustTry("a")
		first, second := b.queue("a"), c.queue("a")
		lost := false
		a.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			err := apply()
			if call.Op == fault.Release && !lost {
				lost = true
				return fault.Lost(call.Op)
			}
			return err
		})
		if err := g.Release(); err != nil || !lost {
			t.Errorf("Release: %v, reply lost %v", err, lost)
		}
		g = w.wantTurn(first)
		w.wantWaiting(second)
		w.release(g)
		w.release(w.wantTurn(second))
	})
}

// The reply of entering is lost: the same session enters again and stands there once.
func TestLock_EnterReplyLost_StandsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a")
		var sent atomic.Int32
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			err := apply()
			if call.Op == fault.Enter && sent.Add(1) <= 3 {
				return fault.Lost(call.Op)
			}
			return err
		})
		done := b.queue("a")
		time.Sleep(20 * time.Second)
		if n := len(w.lock("a").Waiters); n != 1 || sent.Load() < 3 {
			t.Fatalf("%d wait after %d tries of which three had no reply, want one", n, sent.Load())
		}
		w.release(g)
		w.release(w.wantTurn(done))
	})
}

// A waiter that gives up although the server is away leaves nothing behind that blocks others for
// longer than an interval.
func TestLock_GivesUpWithoutServer_LeavesNoGhost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		g := a.mustTry("a")
		gives, next := b.queue("a", distlock.WaitAtMost(time.Minute)), c.queue("a")
		time.Sleep(30 * time.Second)
		b.kill()
		got := <-gives
		wantErr(t, got.err, distlock.ErrHeld)
		time.Sleep(time.Minute)
		b.store.Set(nil) // the server is back
		time.Sleep(2 * pingTime)
		if n := len(w.lock("a").Waiters); n != 1 {
			t.Errorf("%d wait, want only the one that did not give up", n)
		}
		w.release(g)
		w.release(w.wantTurn(next))
	})
}

// A TryLock does not overtake those who wait.
func TestTryLock_OthersWait_DoesNotOvertake(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		reader := a.mustTry("a", distlock.Shared())
		writer := b.queue("a", distlock.Why("write"))
		_, err := c.try("a", distlock.Shared())
		if e := held(t, err); e.Waiters != 1 || e.Mode != "shared" || e.Process != a.Process() {
			t.Errorf("error says %+v", e)
		}
		w.release(reader)
		w.release(w.wantTurn(writer))

		// A foreign release leaves the lock free with a line in it.
		g := a.mustTry("b")
		done := b.queue("b")
		w.freeByHand("b")
		if _, err := c.try("b"); !errors.Is(err, distlock.ErrHeld) {
			t.Errorf("TryLock of a free lock with a line: %v", err)
		}
		got := w.wantTurn(done) // granted by the one that was refused
		wantErr(t, g.Release(), distlock.ErrLockLost)
		w.release(got)
	})
}

// freeByHand writes state 0 and leaves the rest, as MongoDB's own lock manager does.
func (w *world) freeByHand(name string) {
	w.t.Helper()
	var doc bson.D
	if err := bson.Unmarshal(w.doc(name), &doc); err != nil {
		w.t.Fatal(err)
	}
	for i := range doc {
		if doc[i].Key == "state" {
			doc[i].Value = int32(0)
		}
	}
	if err := w.mem.Put(catalog.LocksCollection, doc); err != nil {
		w.t.Fatal(err)
	}
}

// Somebody who knows nothing of lines frees the lock or removes its document: the waiters find it
// within an interval.
func TestLock_ForeignHand_WaitersFindIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, notices := range []bool{true, false} {
			a, b := w.start(nil), w.start(nil)
			if !notices {
				b.withoutNotices()
			}
			for name, hand := range map[string]func(string){
				"freed": w.freeByHand,
				"removed": func(name string) {
					w.mem.Remove(catalog.LocksCollection, name)
				},
			} {
				a.mustTry(name)
				done := b.queue(name)
				time.Sleep(5 * time.Second)
				hand(name)
				start := time.Now()
				w.release(w.wantTurn(done))
				if took := time.Since(start); took > pingTime+pingTime/10+6*time.Second {
					t.Errorf("notices %v, %s: found after %v", notices, name, took)
				}
			}
			_ = a.Close(context.Background())
		}
	})
}

// More waiters than places: the rest wait inside their processes, in order, and all have their
// turn.
func TestLock_MoreThanHundredWaiters_AllHaveTheirTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		g := a.mustTry("a")
		type one struct {
			of *proc
			no int
		}
		var mu sync.Mutex
		var got []one
		var wg sync.WaitGroup
		enter := func(p *proc, no int) {
			wg.Go(func() {
				g, err := p.Lock("a").Lock(context.Background())
				if err != nil {
					t.Errorf("waiter %d: %v", no, err)
					return
				}
				mu.Lock()
				got = append(got, one{p, no})
				mu.Unlock()
				time.Sleep(time.Second)
				_ = g.Release()
			})
			synctest.Wait()
		}
		here, there := 100+effort.Share(50), 50
		for i := range here {
			enter(b, i)
		}
		for i := range there {
			enter(c, i)
		}
		if n := len(w.lock("a").Waiters); n != crowded+1 { // of b, and the first of c
			t.Errorf("%d stand in the document, want %d", n, crowded+1)
		}
		_ = g.Release()
		wg.Wait()
		for _, p := range []*proc{b, c} {
			var order []int
			for _, o := range got {
				if o.of == p {
					order = append(order, o.no)
				}
			}
			if !slices.IsSorted(order) {
				t.Errorf("the order inside a process was %v", order)
			}
		}
		if len(got) != here+there {
			t.Errorf("%d had their turn, want %d", len(got), here+there)
		}
		for i, o := range got[:crowded] {
			if o.of != b || o.no != i {
				t.Fatalf("turn %d was had by number %d", i, o.no)
			}
		}
	})
}

// A process that lost its heartbeat while it waited does not use a grant of that time: it goes to
// the end of the line.
func TestLock_HeartbeatLostWhileWaiting_QueuesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a")
		done := b.queue("a")
		b.kill()
		time.Sleep(holdTime + time.Minute)
		w.release(g) // granted to a process that trusts nothing any more
		w.wantWaiting(done)
		b.store.Set(nil)
		start := time.Now()
		g = w.wantTurn(done)
		if took := time.Since(start); took > 2*pingTime {
			t.Errorf("it had the lock %v after the server came back", took)
		}
		if err := g.Err(); err != nil {
			t.Errorf("the guard is over already: %v", err)
		}
		w.release(g)
	})
}
