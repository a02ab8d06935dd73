package distlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/fault"
)

// A process with hundreds of callers has two queue entries, reads the lock as rarely as a process
// with one caller, and serves its callers in order. A single caller of another process waits at
// most until three of these callers have had the lock.
func TestLock_BesideACrowd_SingleCallerWaitsForThreeTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, many, one := w.start(nil), w.start(nil), w.start(nil)
		g := holder.MustTry("a")
		var turns atomic.Int64
		var mu sync.Mutex
		var order []int
		var errs []error
		var wg sync.WaitGroup
		crowd := 100 + effort.Share(200)
		for i := range crowd {
			wg.Go(func() {
				g, err := many.Lock("a").Lock(context.Background())
				mu.Lock()
				if err == nil {
					order = append(order, i)
				} else {
					errs = append(errs, err)
				}
				mu.Unlock()
				if err != nil {
					return // after a failure the test may be over
				}
				turns.Add(1)
				time.Sleep(20 * time.Millisecond)
				_ = g.Release()
			})
			synctest.Wait()
		}
		assert.MustEqual(t, len(w.Lock("a").Waiters), 2, "%d entries of one process, want %d")
		reads := many.Store.Count(fault.Look)
		time.Sleep(10 * time.Minute)
		if n := many.Store.Count(fault.Look) - reads; n > 25 {
			t.Errorf("%d reads in ten minutes, want those of one caller", n)
		}
		w.release(g)
		for range 20 {
			came := turns.Load()
			g, err := one.Lock("a").Lock(context.Background())
			assert.Must(t, err)
			if waited := turns.Load() - came; waited > 3 {
				t.Errorf("the single caller waited for %d turns", waited)
			}
			time.Sleep(20 * time.Millisecond)
			w.release(g)
		}
		wg.Wait()
		if len(order) != crowd || !slices.IsSorted(order) {
			t.Errorf("the %d callers had their turns in the order %v; errors %v", crowd, order, errs)
		}
	})
}

// If a caller gives up before its session is acquired, the next caller with the same options gets
// the session. If the reason of the next caller differs, it also gets the session of an entry. The
// process releases the session of a TryLock.
func TestAcquire_CallerGone_SessionServesTheNext(t *testing.T) {
	for name, call := range map[string]func(context.Context, *distlock.DistributedLock) (
		*distlock.TryGuard, error){
		"Lock": func(ctx context.Context, l *distlock.DistributedLock) (*distlock.TryGuard, error) {
			return l.Lock(ctx, distlock.Why("work"))
		},
		"TryLock": func(ctx context.Context, l *distlock.DistributedLock) (*distlock.TryGuard, error) {
			return l.TryLock(ctx, distlock.Why("work"))
		},
	} {
		for _, why := range []string{"work", "other"} {
			runInBubble(t, name+", next for "+why, func(t *testing.T, w *world) {
				p := w.start(nil)
				p.Store.Set(fault.Slow(15*time.Millisecond, 0, fault.Acquire, fault.Enter))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				_, err := call(ctx, p.Lock("a"))
				wantErr(t, err, context.DeadlineExceeded)
				g, err := p.Lock("a").Lock(t.Context(), distlock.Why(why), distlock.WaitAtMost(time.Second))
				assert.Must(t, err)
				want := why
				if name == "Lock" {
					want = "work"
				}
				assert.Equal(t, w.Lock("a").Why, want, "the reason in the document is %q, want %q")
				sent := p.Store.Count(fault.Acquire) + p.Store.Count(fault.Enter)
				if want == "work" && (sent > 2 || p.Store.Count(fault.Release) > 0) {
					t.Errorf("%d commands to acquire and %d to release, want one and none", sent,
						p.Store.Count(fault.Release))
				}
				w.release(g)
				time.Sleep(time.Second)
				synctest.Wait()
				if l := w.Lock("a"); l.Held || len(l.Waiters) > 0 {
					t.Errorf("held %t, %d queued, want a free lock", l.Held, len(l.Waiters))
				}
			})
		}
	}
}

// If a caller gives up before its session is acquired, and no other caller waits, the process
// releases the session immediately.
func TestAcquire_CallerGone_SessionIsGivenBackAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.Store.Set(fault.Slow(50*time.Millisecond, 0, fault.Acquire, fault.Enter))
		for _, try := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			lock := p.Lock("a")
			call := lock.Lock
			if try {
				call = lock.TryLock
			}
			_, err := call(ctx)
			cancel()
			wantErr(t, err, context.DeadlineExceeded)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if l := w.Lock("a"); l.Held || len(l.Waiters) > 0 || p.Store.Count(fault.Release) == 0 {
				t.Errorf("held %t, %d queued, want a free lock", l.Held, len(l.Waiters))
			}
		}
	})
}

// Callers whose deadlines are little more than a round trip acquire the lock nearly as often as the
// server can grant it. This also holds if each call has another reason.
func TestLock_ShortDeadlines_OtherReasons_MakeProgress(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const trip, callers, most = 10 * time.Millisecond, 5, 300
		p := w.start(nil)
		p.Store.Set(fault.Slow(trip/2, trip/2, fault.Enter, fault.Release))
		ctx, cancel := context.WithTimeout(t.Context(), most*trip)
		defer cancel()
		var turns, reasons, inside atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					call, end := context.WithTimeout(ctx, trip+trip/5)
					g, err := p.Lock("a").Lock(call, distlock.Why(fmt.Sprint(reasons.Add(1))))
					end()
					if err != nil {
						time.Sleep(time.Millisecond)
						continue
					}
					if inside.Add(1) > 1 {
						t.Error("two callers hold the lock")
					}
					turns.Add(1)
					time.Sleep(trip / 2)
					inside.Add(-1)
					w.release(g)
				}
			})
		}
		all.Wait()
		if n := turns.Load(); n < most/2 {
			t.Errorf("%d turns in %d round trips", n, most)
		}
		time.Sleep(time.Second)
		w.wantFree("a")
	})
}

// If a queued call gives up, the next call of the process gets its entry, even with another reason.
// So callers with short deadlines do not enter and leave the queue all the time.
func TestLock_QueuedCallGivesUp_NextWithOtherReasonGetsTheEntry(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.MustTry("a")
		for i := range 5 {
			ctx, giveUp := context.WithCancel(t.Context())
			gone := p.queueCtx(ctx, "a", distlock.Why(fmt.Sprint("gone ", i)))
			giveUp()
			<-gone
		}
		next := p.queue("a", distlock.Why("next"))
		time.Sleep(time.Minute)
		assert.Equal(t, p.Store.Count(fault.Enter), 1, "%d entries, want %d")
		assert.Equal(t, p.Store.Count(fault.Release), 0, "%d of them left, want %d")
		w.release(g)
		w.release(w.wantTurn(next))
	})
}

// A call waits with the entry of a call that gave up. A later call has the options of that entry.
// The process serves them in the order of the calls.
func TestLock_LaterCallHasTheOptionsOfTheKeptEntry_EarlierIsServedFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p, q := w.start(nil), w.start(nil), w.start(nil)
		g := holder.MustTry("a")
		ctx, giveUp := context.WithCancel(t.Context())
		gone := p.queueCtx(ctx, "a", distlock.Why("x"))
		giveUp()
		<-gone
		calls := []<-chan turn{p.queue("a", distlock.Why("y")), q.queue("a"), p.queue("a", distlock.Why("x"))}
		time.Sleep(time.Minute)
		w.release(g)
		w.wantInOrder(calls)
	})
}

// Two calls of a process wait on after one or two other calls of that process have given up. The
// process keeps its places in the queue, and no grant is wasted. Both calls are served before later
// processes.
func TestLock_CallGivesUp_OthersKeepThePlaces(t *testing.T) {
	for name, c := range map[string]struct{ gone, stay []string }{
		"one, the others with one reason":    {[]string{"gone"}, []string{"x", "x"}},
		"two, each with a reason of its own": {[]string{"gone 1", "gone 2"}, []string{"x", "y"}},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			holder, p, late := w.start(nil), w.start(nil), w.start(nil)
			g := holder.MustTry("a")
			ctx, giveUp := context.WithCancel(t.Context())
			var gone, stay []<-chan turn
			for _, why := range c.gone {
				gone = append(gone, p.queueCtx(ctx, "a", distlock.Why(why)))
			}
			for _, why := range c.stay {
				stay = append(stay, p.queue("a", distlock.Why(why)))
			}
			giveUp()
			for _, done := range gone {
				<-done
			}
			time.Sleep(time.Minute)
			stay = append(stay, late.queue("a"))
			w.release(g)
			w.wantInOrder(stay)
			if n := p.Store.Count(fault.Release); n > 2+len(c.gone) {
				t.Errorf("%d releases of p, want those of its guards, and of the entries given up", n)
			}
			w.wantFree("a")
		})
	}
}

// A call waits with the entry of a call that gave up. Later calls with the reason of that call do
// not overtake it again and again.
func TestLock_OtherReason_IsNotStarved(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.MustTry("a")
		ctx, giveUp := context.WithCancel(t.Context())
		first := p.queue("a", distlock.Why("first"))
		gone := p.queueCtx(ctx, "a", distlock.Why("common"))
		other := p.queue("a", distlock.Why("other"))
		giveUp()
		<-gone
		common := func() <-chan turn { return p.queue("a", distlock.Why("common")) }
		later := []<-chan turn{common(), common()}
		w.release(g)
		w.release(w.wantTurn(first))
		for n := 0; ; n++ {
			time.Sleep(time.Second)
			select {
			case turn := <-other:
				assert.Must(t, turn.err)
				w.release(turn.guard)
				return
			case turn := <-later[0]:
				assert.Must(t, turn.err)
				if later = append(later[1:], common()); n > 3 {
					t.Fatalf("the call was overtaken by %d later calls", n)
				}
				time.Sleep(time.Second)
				w.release(turn.guard)
			}
		}
	})
}

// If a caller gives up before the reply, the command is not cancelled, so that its connection can
// be reused.
func TestVerify_DeadlineOfTheCaller_CommandGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.MustTry("a")
		var cut atomic.Bool
		p.Store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Read {
				time.Sleep(100 * time.Millisecond)
				cut.Store(ctx.Err() != nil)
			}
			return apply()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		wantErr(t, g.Verify(ctx), context.DeadlineExceeded)
		time.Sleep(time.Second)
		if cut.Load() {
			t.Error("the command was cut off")
		}
		w.release(g)
	})
}

// After a failed command, all queue entries of a process pause before the next try. So impatient
// callers send few commands.
func TestLock_CommandsFail_EntriesBackOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.Store.Set(fault.On(fault.Enter, func(func() error) error { return catalog.ErrUnavailable }))
		began := time.Now()
		for time.Since(began) < time.Minute {
			_, err := p.Lock("a").Lock(t.Context(), distlock.WaitAtMost(20*time.Millisecond))
			wantErr(t, err, distlock.ErrUnavailable)
		}
		if n := p.Store.Count(fault.Enter); n > 40 {
			t.Errorf("%d commands in a minute to a server that is away", n)
		}
		p.Store.Set(nil)
		time.Sleep(p.Config().PollMax)
		g, err := p.Lock("a").Lock(t.Context(), distlock.WaitAtMost(time.Minute))
		assert.Must(t, err)
		w.release(g)
	})
}

// On a slow server, impatient callers of TryLock send one command at a time, and at most three if
// each call has another reason.
func TestTryLock_ImpatientCallers_FewCommands(t *testing.T) {
	t.Run("equal options", func(t *testing.T) {
		impatientTries(t, 1, func(int) string { return "" })
	})
	t.Run("other reasons", func(t *testing.T) {
		impatientTries(t, 3, func(i int) string { return fmt.Sprint("order ", i) })
	})
}

func impatientTries(t *testing.T, limit int, why func(i int) string) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		var mu sync.Mutex
		var now, most int
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
		}
		p.Store.Set(fault.On(fault.Acquire, func(apply func() error) error {
			count(1)
			time.Sleep(time.Second)
			count(-1)
			return apply()
		}))
		for i := range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			g, err := p.Lock("a").TryLock(ctx, distlock.Why(why(i)))
			if err == nil {
				w.release(g)
			}
			cancel()
		}
		mu.Lock()
		defer mu.Unlock()
		if most > limit {
			t.Errorf("%d commands at a time, want at most %d", most, limit)
		}
	})
}

// Many concurrent calls of TryLock cost a process as many commands as two: the calls that arrive
// during a try share the next one. A call is refused only by a command that was sent after the call
// began. If the lock is free, exactly one of the calls acquires it.
func TestTryLock_ManyAtOnce_ShareCommands(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		var free atomic.Int64 // virtual time of the release; 0 before
		const trip = 5 * time.Millisecond
		p.Store.Set(fault.Slow(trip, trip, fault.Acquire, fault.Enter, fault.Look, fault.Release))
		attempt := func() (acquired int) {
			var got atomic.Int64
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					began := time.Now().UnixNano()
					g, err := p.Lock("a").TryLock(t.Context())
					if err == nil {
						got.Add(1)
						time.Sleep(time.Second)
						w.release(g)
						return
					}
					wantErr(t, err, distlock.ErrHeld)
					if at := free.Load(); at > 0 && began > at && got.Load() == 0 {
						t.Errorf("refused, although the lock was free during the whole call")
					}
				})
				time.Sleep(400 * time.Microsecond)
			}
			wg.Wait()
			return int(got.Load())
		}
		g := holder.MustTry("a")
		before := p.Store.Count(fault.Acquire) + p.Store.Count(fault.Look)
		assert.Equal(t, attempt(), 0, "%d acquisitions of a held lock, want %d")
		if n := p.Store.Count(fault.Acquire) + p.Store.Count(fault.Look) - before; n > 4 {
			t.Errorf("%d commands for 50 refused calls, want 4", n)
		}
		go func() { // after the last command of the first try was carried out
			time.Sleep(16 * time.Millisecond)
			w.release(g)
			free.Store(time.Now().UnixNano())
		}()
		assert.Equal(t, attempt(), 1, "%d acquisitions of a lock that became free, want %d")
	})
}

// If a command succeeds, its context ends only after the caller has received the reply.
func TestCommand_Answered_ItsContextEndsAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		command, cancel := context.WithCancel(t.Context())
		got := make(chan struct{})
		answer := func(context.Context) error { return nil }
		assert.NoErr(t, distlock.InTime(t.Context(), command, true, answer, func() { <-got; cancel() }))
		close(got)
	})
}
