package distlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// callers starts n callers in a process. Each caller acquires the lock "a" the given number of
// times, and holds it for the given duration. The returned function waits for the callers.
func (p *proc) callers(n, times int, hold time.Duration, inside *atomic.Int64) (wait func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for range times {
				g, err := p.Lock("a").Lock(context.Background())
				if err != nil {
					p.w.T.Error(err)
					return
				}
				if inside.Add(1) > 1 {
					p.w.T.Error("two callers hold the lock")
				}
				time.Sleep(hold)
				inside.Add(-1)
				_ = g.Release() // a fault of the test may have hit it
			}
		})
		synctest.Wait()
	}
	return all.Wait
}

// If the callers of a process hold the lock for less than a round trip, a hand-over costs one
// command: the release also queues the next entry. Another process keeps its place in the queue.
func TestLock_ManyCallersOfAProcess_ReleaseQueuesTheNext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const callers = 20
		holder, p, q := w.start(nil), w.start(nil), w.start(nil)
		g := holder.MustTry("a")
		var inside atomic.Int64
		done := p.callers(callers, 1, 5*time.Millisecond, &inside)
		one := q.queue("a")
		w.release(g)
		time.Sleep(17 * time.Millisecond) // the first two callers of p, then q
		g = w.wantTurn(one)
		assert.Equal(t, len(w.Lock("a").Waiters), 2, "%d entries of p behind q, want %d")
		w.release(g)
		done()
		if n := p.Store.Count(fault.Release); n != callers {
			t.Errorf("%d releases of %d callers", n, callers)
		}
		assert.Equal(t, p.Store.Count(fault.Enter), 3,
			"%d commands of entries, want those of before the first release (%d)")
		w.wantFree("a")
	})
}

// If a caller holds the lock for longer than a round trip, the next entry of its process does not
// wait for the release.
func TestLock_ManyCallersOfAProcess_LongHold_NextIsQueued(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.MustTry("a")
		var inside atomic.Int64
		done := p.callers(3, 1, time.Minute, &inside)
		w.release(g)
		time.Sleep(20 * time.Millisecond)
		assert.Equal(t, len(w.Lock("a").Waiters), 2, "%d entries, want one of each caller that waits (%d)")
		done()
	})
}

// If the last caller of an entry gives up before the entry is queued, the process sends no command
// for the entry.
func TestLock_CallerGoneBeforeItsEntry_NoCommand(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.MustTry("a")
		short, second, third := p.queue("a"), p.queue("a"), p.queue("a")
		ctx, cancel := context.WithCancel(t.Context())
		last := p.queueCtx(ctx, "a")
		w.release(g)
		w.release(w.wantTurn(short))
		g = w.wantTurn(second)
		cancel()
		wantErr(t, (<-last).err, context.Canceled)
		time.Sleep(time.Minute)
		assert.Equal(t, p.Store.Count(fault.Enter), 3, "%d commands of entries, want the first %d")
		w.release(g)
		w.release(w.wantTurn(third))
	})
}

// If a release that queues an entry fails, is lost or is applied late, every caller still acquires
// the lock, one at a time. Neither a holder nor a waiter stays in the document.
func TestLock_ReleaseThatQueues_Fails_NothingIsLost(t *testing.T) {
	for name, fail := range map[string]func(apply func() error) error{
		"refused": func(func() error) error { return fault.Refused(fault.Release) },
		"lost":    func(func() error) error { return fault.Lost(fault.Release) },
		"reply lost": func(apply func() error) error {
			_ = apply()
			return fault.Lost(fault.Release)
		},
		"slow": func(apply func() error) error {
			time.Sleep(commandTimeout / 2)
			return apply()
		},
		"applied late": func(apply func() error) error {
			go func() { // ends soon
				time.Sleep(time.Second)
				_ = apply()
			}()
			return fault.Lost(fault.Release)
		},
	} {
		for _, nth := range []int32{2, 3, 5} {
			runInBubble(t, fmt.Sprintf("%s, release %d", name, nth), func(t *testing.T, w *world) {
				holder, p, q := w.start(nil), w.start(nil), w.start(nil)
				g := holder.MustTry("a")
				var inside atomic.Int64
				wait := []func(){
					p.callers(4, 3, 5*time.Millisecond, &inside), q.callers(3, 3, 5*time.Millisecond, &inside),
				}
				var releases atomic.Int32
				p.Store.Set(fault.On(fault.Release, func(apply func() error) error {
					if releases.Add(1) == nth {
						return fail(apply)
					}
					return apply()
				}))
				start := time.Now()
				w.release(g)
				for _, done := range wait {
					done()
				}
				if took := time.Since(start); took > 2*commandTimeout {
					t.Errorf("21 turns took %v", took)
				}
				time.Sleep(2 * pingTime)
				w.wantFree("a")
				assert.Equal(t, len(w.Lock("a").Waiters), 0, "%d waiters are left, want %d")
			})
		}
	}
}

// lag makes each entry and release take 5 ms.
func lag() fault.Hook {
	return fault.Slow(2*time.Millisecond, 3*time.Millisecond, fault.Enter, fault.Release)
}

// If the context of a caller ends while its release also queues a session, the other callers of the
// process are not delayed.
func TestDo_CanceledDuringTheReleaseThatQueues_DelaysNoOther(t *testing.T) {
	for i := range 5 { // several events occur at one instant, in random order
		runInBubble(t, fmt.Sprint(i), func(t *testing.T, w *world) {
			holder, p := w.start(nil), w.start(nil)
			g := holder.MustTry("a")
			p.Store.Set(lag())
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			var inside atomic.Int64
			short := p.callers(1, 1, time.Millisecond, &inside)
			go func() {
				ended <- p.Do(ctx, "a", func(context.Context, *distlock.TryGuard) error {
					time.AfterFunc(2*time.Millisecond, cancel)
					return nil
				})
			}()
			synctest.Wait()
			done := p.callers(6, 1, time.Millisecond, &inside)
			time.Sleep(time.Second)
			start := time.Now()
			w.release(g)
			short()
			done()
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Errorf("8 turns took %v", took)
			}
			wantErr(t, <-ended, context.Canceled)
		})
	}
}

// A queue that is always full has room for a process without an entry: the releases of the other
// processes do not fill it.
func TestLock_FullQueue_ReleasesLeaveRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		g := w.start(nil).MustTry("a")
		var all sync.WaitGroup
		for range catalog.MaxWaiters + 1 {
			p := w.start(nil)
			p.Store.Set(lag())
			for range 2 {
				all.Go(func() {
					for ctx.Err() == nil {
						if g, err := p.Lock("a").Lock(ctx); err == nil {
							time.Sleep(2 * time.Millisecond)
							_ = g.Release()
						}
					}
				})
			}
		}
		time.Sleep(time.Second)
		one := w.start(nil)
		w.release(g)
		time.Sleep(time.Second)
		g, err := one.Lock("a").Lock(t.Context(), distlock.WaitAtMost(10*time.Second))
		assert.NoErr(t, err, "the process without an entry")
		_ = g.Release()
		cancel()
		all.Wait()
	})
}

// If the store panics in a release that queues a session, the callers of the process continue.
func TestLock_ReleaseThatQueues_StorePanics_OthersGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.MustTry("a")
		short := p.queue("a")
		waits := []<-chan turn{p.queue("a"), p.queue("a"), p.queue("a")}
		w.release(g)
		w.release(w.wantTurn(short))
		g = w.wantTurn(waits[0])
		p.Store.Set(fault.On(fault.Release, func(func() error) error { panic("the store panics") }))
		func() {
			defer func() { _ = recover() }()
			_ = g.Release()
		}()
		p.Store.Set(nil)
		for _, wait := range waits[1:] {
			w.release(w.wantTurn(wait))
		}
	})
}

// Close ends an entry that waits for a release, and sends no command for it.
func TestClose_EntryWaitsForARelease_Ends(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.MustTry("a")
		short, first, second, third := p.queue("a"), p.queue("a"), p.queue("a"), p.queue("a")
		w.release(g)
		w.release(w.wantTurn(short))
		w.wantTurn(first)
		start := time.Now()
		assert.Must(t, p.Close(t.Context()))
		<-second
		<-third
		if took := time.Since(start); took > 0 {
			t.Errorf("Close took %v", took)
		}
		assert.Equal(t, p.Store.Count(fault.Enter), 3, "%d commands of entries, want the first %d")
		w.wantFree("a")
	})
}

// A function runs under a lock, and an entry waits for the release of that lock. Close ends the
// entry, even if a round trip takes seconds.
func TestClose_FunctionRuns_EntryWaitsForItsRelease_Ends(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.start(nil), w.start(nil)
		g := holder.MustTry("a")
		p.Store.Set(fault.Slow(0, 3*time.Second, fault.Enter))
		short, end := p.queue("a"), make(chan struct{})
		go func() {
			_ = p.Do(t.Context(), "a", func(context.Context, *distlock.TryGuard) error {
				<-end
				return nil
			})
		}()
		synctest.Wait()
		third, last := p.queue("a"), p.queue("a")
		time.Sleep(4 * time.Second)
		w.release(g)
		w.release(w.wantTurn(short))
		time.Sleep(4 * time.Second) // the third entry is queued, and the last one waits
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Close(ctx); err == nil || strings.Contains(err.Error(), "did not end") {
			t.Errorf("Close returns %v", err)
		}
		close(end)
		<-third
		<-last
	})
}

// If a release that queues a session is lost, and the caller of the session gives up, the server
// may still carry out the release later. Close then removes the session.
func TestClose_AfterALostReleaseThatQueues_LeavesNoGhost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p, q := w.start(nil), w.start(nil), w.start(nil)
		g := holder.MustTry("a")
		short, second, other := p.queue("a"), p.queue("a"), q.queue("a")
		third := p.queue("a")
		ctx, cancel := context.WithCancel(t.Context())
		last := p.queueCtx(ctx, "a")
		w.release(g)
		w.release(w.wantTurn(short))
		g = w.wantTurn(second)
		var late func() error
		p.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			switch {
			case call.Op == fault.Enter:
				return fault.Refused(call.Op)
			case call.Op == fault.Release && late == nil:
				late = apply
				return fault.Lost(call.Op)
			}
			return apply()
		})
		released := make(chan error, 1)
		go func() { released <- g.Release() }()
		synctest.Wait()
		cancel()
		wantErr(t, (<-last).err, context.Canceled)
		time.Sleep(time.Second) // before the second try of the release
		assert.Must(t, late())
		assert.NoErr(t, p.Close(t.Context()))
		<-released
		if got := <-third; got.err == nil {
			t.Error("a call succeeds after Close")
		}
		for _, wait := range w.Lock("a").Waiters {
			if wait.Process == p.Process() {
				t.Errorf("%s is still queued", wait.Who)
			}
		}
		w.release(w.wantTurn(other))
	})
}
