package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
	"mongodlm/takeover"
)

// In these tests a contender takes over the lock of a dead process, although each try is short,
// tries are rare, or a new process makes each try.

// A run of a cron job is a new process that tries for a limited time.
func (w *world) once(wait time.Duration, change func(*distlock.Config)) error {
	p := w.start(change)
	defer p.Close(context.Background())
	return p.Do(w.T.Context(), "a", func(context.Context, *distlock.TryGuard) error { return nil },
		distlock.WaitAtMost(wait))
}

// If the holder has crashed, a cron job acquires the lock at its second run, even if each run tries
// only for a moment.
func TestDo_NewProcessEachTime_RunsAtTheSecondTry(t *testing.T) {
	for _, wait := range []time.Duration{20 * time.Millisecond, 3 * time.Second, 20 * time.Second} {
		for _, every := range []time.Duration{
			time.Minute, 90 * time.Second, 15 * time.Minute, 24 * time.Hour,
		} {
			runInBubble(t, fmt.Sprint(wait, " each ", every), func(t *testing.T, w *world) {
				a := w.start(nil)
				a.MustTry("a")
				a.kill()
				time.Sleep(takeoverTime + pingTime)
				wantErr(t, w.once(wait, nil), distlock.ErrHeld)
				time.Sleep(every - wait)
				assert.NoErr(t, w.once(wait, nil), "the second run")
			})
		}
	}
}

// If the first run of a cron job exits without Close, it leaves a queue entry. The second run still
// takes over the lock of a dead process.
func TestDo_RunsExitWithoutClose_TakesOver(t *testing.T) {
	for _, every := range []time.Duration{85 * time.Second, 5 * time.Minute, 24 * time.Hour} {
		for name, opts := range map[string][]distlock.Option{"": nil, "shared": {distlock.Shared()}} {
			runInBubble(t, every.String()+name, func(t *testing.T, w *world) {
				a, b := w.start(nil), w.start(nil)
				a.MustTry("a", opts...)
				if opts != nil {
					b.MustTry("a", opts...)
				}
				a.kill()
				b.kill()
				time.Sleep(takeoverTime + pingTime)
				for run := 1; ; run++ {
					began, p := time.Now(), w.start(nil)
					g, err := p.Lock("a").Lock(t.Context(), distlock.WaitAtMost(20*time.Second))
					if err == nil {
						w.release(g)
						return
					}
					if wantErr(t, err, distlock.ErrHeld); run == 2 {
						t.Fatalf("not taken over: %s", w.Document("a"))
					}
					p.kill()
					time.Sleep(every - time.Since(began))
				}
			})
		}
	}
}

// If a process rarely calls TryLock, it takes over the lock of a dead process at the first call
// after the takeover time and a ping interval.
func TestTryLock_SeldomInALivingProcess_TakesOver(t *testing.T) {
	for _, every := range []time.Duration{
		45 * time.Second, 3*time.Minute + 46*time.Second, 5 * time.Minute, 14 * time.Minute, time.Hour,
		6 * time.Hour,
	} {
		for _, rule := range []takeover.Rule{takeover.Witnesses, takeover.WatchOnly} {
			runInBubble(t, fmt.Sprint(every, " ", rule), func(t *testing.T, w *world) {
				a, b := w.start(nil), w.start(func(c *distlock.Config) { c.TakeoverRule = rule })
				a.MustTry("a")
				a.kill()
				died := time.Now()
				for {
					_, err := b.Try("a")
					if after := time.Since(died); err == nil {
						if after < takeoverTime-pingTime {
							t.Errorf("taken over %v after the death", after)
						}
						return
					} else if !errors.Is(err, distlock.ErrHeld) {
						t.Fatal(err)
					} else if after >= takeoverTime+pingTime {
						t.Fatalf("not taken over %v after the death: %v", after, err)
					}
					time.Sleep(every)
				}
			})
		}
	}
}

// A contender cannot enter the queue if the queue is full, the semaphore has another limit, or the
// call is part of a transaction. By repeated short waits it still takes the lock over.
func TestLock_SeldomFromOutside_TakesOver(t *testing.T) {
	two := []distlock.Option{distlock.Permits(2)}
	inTransaction := func(w *world, b *proc) error {
		tx := w.Mem.Begin()
		defer tx.Abort()
		return b.Lock("a").LockInTransaction(tx.Context(context.Background()),
			distlock.WaitAtMost(20*time.Second))
	}
	permit := func(_ *world, b *proc) error {
		g, err := b.Lock("a").Lock(context.Background(),
			append(two, distlock.WaitAtMost(20*time.Second))...)
		if err == nil {
			b.Kept = append(b.Kept, g)
		}
		return err
	}
	for name, c := range map[string]struct {
		die func(w *world, dead *proc)
		try func(w *world, b *proc) error
	}{
		"another limit": {func(_ *world, dead *proc) { dead.MustTry("a", distlock.Permits(3)) }, permit},
		"full queue": {func(w *world, dead *proc) {
			dead.MustTry("a", two...)
			dead.MustTry("a", two...)
			w.fill(dead, "a", two...)
		}, permit},
		"transaction": {func(_ *world, dead *proc) { dead.MustTry("a") }, inTransaction},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			dead, b := w.start(nil), w.start(nil)
			c.die(w, dead)
			dead.kill()
			died := time.Now()
			for c.try(w, b) != nil {
				if time.Since(died) > takeoverTime+10*time.Minute+pingTime {
					t.Fatalf("not taken over after %v", time.Since(died))
				}
				time.Sleep(5 * time.Minute)
			}
		})
	}
}

// If the holders of locks miss pings, a process that was refused reads all these locks with one
// command per ping interval. It does not condemn the holders. The reads end when the holders ping
// again.
func TestTryLock_SilentHolders_OneCommandAnInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		alive := a.MustTry("alive")
		for i := range 20 {
			a.MustTry(fmt.Sprint(i))
		}
		wantErr(t, assert.Err(b.Try("alive")), distlock.ErrHeld)
		time.Sleep(10 * time.Minute)
		if n := b.Store.Count(fault.Look); n > 3 {
			t.Errorf("%d reads of a lock whose holder lives, for one try", n)
		}
		a.kill()
		time.Sleep(3 * pingTime)
		for i := range 20 {
			wantErr(t, assert.Err(b.Try(fmt.Sprint(i))), distlock.ErrHeld)
		}
		before := b.Store.Count(fault.Look)
		time.Sleep(time.Hour)
		if n := b.Store.Count(fault.Look) - before; n < 115 || n > 125 {
			t.Errorf("%d reads of 20 silent locks in an hour, want one an interval of %v", n, pingTime)
		}
		if n := b.Store.Count(fault.Condemn) + b.Store.Count(fault.Evict); n > 0 {
			t.Errorf("%d were condemned or evicted although no process waits for their locks", n)
		}
		assert.Equal(t, b.Store.Count(fault.Witness), 1, "%d writes for one silent process, want %d")
		a.Store.Set(nil) // process a pings again: its guards are lost, and its locks are still held
		time.Sleep(2 * pingTime)
		before = b.Store.Count(fault.Look)
		time.Sleep(time.Hour)
		if n := b.Store.Count(fault.Look) - before; n > 1 {
			t.Errorf("%d reads in an hour of locks whose holder is back", n)
		}
		_ = alive.Release()
	})
}
