package distlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// Fifty waiters of one process for one lock cost what one does, and get it in the order in which
// they came.
func TestLock_ManyWaitersOfOneName_CostOfOne_InOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a")
		var mu sync.Mutex
		var got []int
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				g, err := b.Lock("a").Lock(t.Context())
				if err != nil {
					t.Errorf("waiter %d: %v", i, err)
					return
				}
				mu.Lock()
				got = append(got, i)
				mu.Unlock()
				_ = g.Release()
			})
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		looks := b.store.Count(fault.Look)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := b.store.Count(fault.Look) - looks; n > 10*60*2 {
			t.Errorf("%d looks in ten minutes by 50 waiters, want those of one: at most two a second", n)
		}
		_ = g.Release()
		wg.Wait()
		if !slices.IsSorted(got) || len(got) != 50 {
			t.Errorf("they got it in the order %v", got)
		}
	})
}

// A waiter in the middle of the line gives up, the first one too: the others go on, and each is
// told in its own time.
func TestLock_WaitersGiveUp_TheLineGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.mustTry("a")
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			wait := time.Duration(1+i%3) * 10 * time.Second
			wg.Go(func() {
				_, err := b.Lock("a").Lock(t.Context(), distlock.WaitAtMost(wait))
				wantErr(t, err, distlock.ErrHeld)
				if took := time.Since(start); took != wait {
					t.Errorf("waiter %d was told after %v, want %v", i, took, wait)
				}
			})
		}
		last := make(chan error, 1)
		go func() {
			g, err := b.Lock("a").Lock(t.Context(), distlock.Why("last"))
			if err == nil {
				err = g.Release()
			}
			last <- err
		}()
		wg.Wait()
		_ = g.Release()
		assert.NoErr(t, <-last, "the last of the line")
	})
}

// A lock that was taken and given back while the reaper reads is no ghost.
func TestReap_BusyProcess_NoFalseGhosts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		var g *distlock.TryGuard
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op != fault.Held {
				return apply()
			}
			g = p.mustTry("a") // acquired after the reaper began
			err := apply()
			_ = g.Release() // released before it asks what is owned
			return err
		})
		time.Sleep(3 * pingTime)
		synctest.Wait()
		if g == nil {
			t.Fatal("the reaper never read: the test proves nothing")
		}
		assert.Equal(t, p.Stats().Ghosts, 0, "%d ghosts counted, want %d")
	})
}
