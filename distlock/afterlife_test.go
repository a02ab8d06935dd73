package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
	"mongodlm/internal/test/locktest"
	"mongodlm/takeover"
)

// A contender acquires the lock of a dead process even if it tries briefly, seldom, or in a new
// process each time.

// once simulates one run of a cron job: a new process that tries for a limited time.
func (w *world) once(wait time.Duration, change func(*distlock.Config)) error {
	p := w.start(change)
	defer p.Close(context.Background())
	return p.Do(w.t.Context(), "a", func(context.Context, *distlock.TryGuard) error { return nil },
		distlock.WaitAtMost(wait))
}

// The nightly job of the README waits 20 s. It runs again in the second night after a crash.
func TestDo_NewProcessEachTime_RunsAtTheSecondTry(t *testing.T) {
	for _, every := range []time.Duration{
		time.Minute, 90 * time.Second, 15 * time.Minute, 24 * time.Hour,
	} {
		runInBubble(t, every.String(), func(t *testing.T, w *world) {
			a := w.start(nil)
			a.mustTry("a")
			a.kill()
			time.Sleep(takeoverTime + pingTime)
			for run := 1; ; run++ {
				began := time.Now()
				err := w.once(20*time.Second, nil)
				switch {
				case err == nil && run == 1:
					t.Error("taken over by a first look of 20 s")
					return
				case err == nil:
					return
				case !errors.Is(err, distlock.ErrHeld) || run == 2:
					t.Fatalf("run %d: %v", run, err)
				}
				time.Sleep(every - time.Since(began))
			}
		})
	}
}

// Runs that end without Close, for example by log.Fatal, leave queue entries that do not delay the
// next runs.
func TestDo_RunsExitWithoutClose_TakesOver(t *testing.T) {
	for _, every := range []time.Duration{85 * time.Second, 5 * time.Minute, 24 * time.Hour} {
		for name, opts := range map[string][]distlock.Option{"": nil, "shared": {distlock.Shared()}} {
			runInBubble(t, every.String()+name, func(t *testing.T, w *world) {
				a, b := w.start(nil), w.start(nil)
				a.mustTry("a", opts...)
				if opts != nil {
					b.mustTry("a", opts...)
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
						t.Fatalf("not taken over: %s", w.doc("a"))
					}
					p.kill()
					time.Sleep(every - time.Since(began))
				}
			})
		}
	}
}

// The second run of a job acquires its locks even if each wait is shorter than the pause between
// two reads of the queue. The wait is bounded by WaitAtMost or a context. One case omits Close.
func TestLock_JobWaitsForAMoment_HasItAtTheSecondRun(t *testing.T) {
	for _, wait := range []time.Duration{
		20 * time.Millisecond, 3 * time.Second, 4900 * time.Millisecond,
	} {
		for _, how := range []string{"WaitAtMost", "context", "WaitAtMost, no Close"} {
			runInBubble(t, fmt.Sprint(wait, " ", how), func(t *testing.T, w *world) {
				names := []string{"a", "b"}
				for _, name := range names {
					dead := w.start(nil)
					dead.mustTry(name, distlock.Shared())
					dead.kill()
				}
				time.Sleep(takeoverTime + pingTime)
				for run := range 2 {
					p := w.start(nil)
					for _, name := range names {
						ctx, opts := context.Background(), []distlock.Option{distlock.WaitAtMost(wait)}
						if how == "context" {
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(ctx, wait)
							defer cancel()
							opts = nil
						}
						g, err := p.Lock(name).Lock(ctx, opts...)
						if held := errors.Is(err, distlock.ErrHeld); held != (run == 0) {
							t.Fatalf("run %d: %v", run, err)
						}
						_ = g.Release()
					}
					if how == "WaitAtMost, no Close" {
						p.kill()
					} else {
						assert.NoErr(t, p.Close(context.Background()))
					}
					time.Sleep(90 * time.Second)
				}
			})
		}
	}
}

// A contender that is killed during its try leaves its observation for the next run.
func TestDo_ContenderKilledInItsTry_TheNextRunCountsFromIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		a.mustTry("a")
		a.kill()
		time.Sleep(takeoverTime + pingTime)
		b.store.Set(fault.On(fault.Release, func(func() error) error {
			b.kill()
			return fault.Refused(fault.Release)
		}))
		_, err := b.Lock("a").Lock(t.Context(), distlock.WaitAtMost(20*time.Second))
		wantErr(t, err, distlock.ErrHeld)
		b.kill()
		time.Sleep(time.Hour)
		// The killed contender is in the queue. The same rule evicts it.
		if w.once(20*time.Second, nil) != nil {
			time.Sleep(time.Minute)
			assert.NoErr(t, w.once(20*time.Second, nil))
		}
	})
}

// A living process acquires a dead process's lock at its first try after the takeover time and an
// interval, however rarely it tries.
func TestTryLock_SeldomInALivingProcess_TakesOver(t *testing.T) {
	for _, every := range []time.Duration{
		45 * time.Second, 3*time.Minute + 46*time.Second, 5 * time.Minute, 14 * time.Minute, time.Hour,
		6 * time.Hour,
	} {
		for _, rule := range []takeover.Rule{takeover.Witnesses, takeover.WatchOnly} {
			runInBubble(t, fmt.Sprint(every, " ", rule), func(t *testing.T, w *world) {
				a, b := w.start(nil), w.start(func(c *distlock.Config) { c.TakeoverRule = rule })
				a.mustTry("a")
				a.kill()
				died := time.Now()
				for {
					_, err := b.try("a")
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

// A process that waits rarely and briefly takes over in its first wait after the takeover time and
// an interval.
func TestLock_SeldomAndShortInALivingProcess_TakesOver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(func(c *distlock.Config) { c.TakeoverRule = takeover.WatchOnly })
		a.mustTry("a")
		a.kill()
		died := time.Now()
		for {
			g, err := b.Lock("a").Lock(t.Context(), distlock.WaitAtMost(20*time.Second))
			if err == nil {
				b.Kept = append(b.Kept, g)
				return
			}
			if time.Since(died) > takeoverTime+10*time.Minute+pingTime {
				t.Fatalf("not taken over after %v: %v", time.Since(died), err)
			}
			time.Sleep(10 * time.Minute)
		}
	})
}

// A contender that cannot queue also takes over by short waits: the queue is full of dead waiters,
// the holder has another limit, or the contender is in a transaction.
func TestLock_SeldomFromOutside_TakesOver(t *testing.T) {
	two := []distlock.Option{distlock.Permits(2)}
	inTransaction := func(w *world, b *proc) error {
		tx := w.mem.Begin()
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
		"another limit": {func(_ *world, dead *proc) { dead.mustTry("a", distlock.Permits(3)) }, permit},
		"full line": {func(w *world, dead *proc) {
			dead.mustTry("a", two...)
			dead.mustTry("a", two...)
			w.fill(dead, "a", two...)
		}, permit},
		"transaction": {func(_ *world, dead *proc) { dead.mustTry("a") }, inTransaction},
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

// LockAll acquires several locks whose holders died at different times.
func TestLockAll_SeldomInALivingProcess_TakesOver(t *testing.T) {
	for _, wait := range []time.Duration{0, 20 * time.Second} {
		runInBubble(t, wait.String(), func(t *testing.T, w *world) {
			b := w.start(nil)
			names := []string{"a", "b", "c"}
			for _, name := range names {
				dead := w.start(nil)
				dead.mustTry(name)
				dead.kill()
			}
			died := time.Now()
			for {
				all, err := b.LockAll(t.Context(), names, distlock.WaitAtMost(wait))
				if err == nil {
					_ = all.Release()
					return
				}
				wantErr(t, err, distlock.ErrHeld)
				if after := time.Since(died); after > takeoverTime+pingTime {
					t.Fatalf("not taken over %v after the death: %v", after, err)
				}
				time.Sleep(5 * time.Minute)
			}
		})
	}
}

// In the background, one command an interval reads all silent holders. It stops once the holders
// live or the locks are free, and condemns no process.
func TestTryLock_SilentHolders_OneCommandAnInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		alive := a.mustTry("alive")
		for i := range 20 {
			a.mustTry(fmt.Sprint(i))
		}
		wantErr(t, assert.Err(b.try("alive")), distlock.ErrHeld)
		time.Sleep(10 * time.Minute)
		if n := b.store.Count(fault.Look); n > 3 {
			t.Errorf("%d looks at a lock whose holder lives, for one try", n)
		}
		a.kill()
		time.Sleep(3 * pingTime)
		for i := range 20 {
			wantErr(t, assert.Err(b.try(fmt.Sprint(i))), distlock.ErrHeld)
		}
		before := b.store.Count(fault.Look)
		time.Sleep(time.Hour)
		if n := b.store.Count(fault.Look) - before; n < 115 || n > 125 {
			t.Errorf("%d looks in an hour at 20 silent locks, want one an interval of %v", n, pingTime)
		}
		if n := b.store.Count(fault.Condemn) + b.store.Count(fault.Evict); n > 0 {
			t.Errorf("%d were condemned or taken out although nobody wants their locks", n)
		}
		assert.Equal(t, b.store.Count(fault.Witness), 1, "%d writes for one silent process, want %d")
		a.store.Set(nil) // a's pings succeed again: its guards are lost, its locks are still held
		time.Sleep(2 * pingTime)
		before = b.store.Count(fault.Look)
		time.Sleep(time.Hour)
		if n := b.store.Count(fault.Look) - before; n > 1 {
			t.Errorf("%d looks in an hour at locks whose holder is back", n)
		}
		_ = alive.Release()
	})
}

// A living process acquires a dead process's lock even if its tries are short and its grant stream
// is late. If a try ends before the first read of the queue has returned, the next try acquires the
// lock.
func TestAcquire_ForAMomentInALivingProcess_TakesOver(t *testing.T) {
	const look = 300 * time.Millisecond
	wait := func(b *proc, d time.Duration) (*distlock.TryGuard, error) {
		return b.Lock("a").Lock(context.Background(), distlock.WaitAtMost(d))
	}
	try := func(b *proc, d time.Duration) (*distlock.TryGuard, error) {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		return b.Lock("a").TryLock(ctx)
	}
	for name, call := range map[string]func(*proc, time.Duration) (*distlock.TryGuard, error){
		"Lock": wait, "TryLock": try,
	} {
		for _, every := range []time.Duration{
			time.Second, 20 * time.Second, 47 * time.Second, 10 * time.Minute,
		} {
			for _, d := range []time.Duration{20 * time.Millisecond, 3 * time.Second} {
				runInBubble(t, fmt.Sprint(name, " for ", d, " each ", every), func(t *testing.T, w *world) {
					a := w.start(nil)
					b := w.startOn(catalog.ReplicaSet,
						func(c *distlock.Config) { c.TakeoverRule = takeover.WatchOnly })
					b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
						switch call.Op {
						case fault.Notice:
							defer time.Sleep(10 * time.Second)
						case fault.Look:
							time.Sleep(look / 2)
							defer time.Sleep(look / 2)
						}
						return apply()
					})
					a.mustTry("a")
					a.kill()
					died := time.Now()
					tick := time.NewTicker(every)
					defer tick.Stop()
					for {
						g, err := call(b, d)
						if err == nil {
							w.release(g)
							return
						}
						// The bound adds a first read, the takeover time, an interval and a tick.
						// Another tick is needed if a try ended before the takeover.
						if after := time.Since(died); after > takeoverTime+2*pingTime+2*every {
							t.Fatalf("not taken over %v after the death: %v", after, err)
						}
						<-tick.C
					}
				})
			}
		}
	}
}

// The holder's next ping removes the observation from its ping document.
func TestTryLock_SilentHolderPingsAgain_NothingIsCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		g := a.mustTry("a")
		a.kill()
		time.Sleep(3 * pingTime)
		wantErr(t, w.once(20*time.Second, nil), distlock.ErrHeld)
		ping := w.mem.Document(catalog.PingsCollection, a.Process())
		if p, bad := catalog.ParsePing(ping); bad != nil || p.Sight.Seq != p.Seq || p.Sight.By == "" {
			t.Errorf("the silent one's ping is %s, want what the contender saw in it", ping)
		}
		a.store.Set(nil)
		time.Sleep(2 * pingTime)
		if _, err := w.mem.Document(catalog.PingsCollection, a.Process()).LookupErr("sight"); err == nil {
			t.Error("the ping after it keeps what was seen")
		}
		assert.NoErr(t, g.Err())
	})
}

// If one clock is wrong, an observation causes no takeover. A living holder that is cut off for
// three intervals keeps its lock, whichever clock is wrong.
func TestDo_OneWrongClock_TakesNothingBySight(t *testing.T) {
	const wrong = time.Hour
	for name, by := range map[string]struct{ holder, first, second time.Duration }{
		"holder behind": {holder: -wrong}, "holder ahead": {holder: wrong},
		"first contender behind": {first: -wrong}, "first contender ahead": {first: wrong},
		"second contender behind": {second: -wrong}, "second contender ahead": {second: wrong},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			start := func(d time.Duration) *proc { return w.startBy(locktest.WrongClock(d), nil) }
			a := start(by.holder)
			g := a.mustTry("a")
			a.kill()
			time.Sleep(3 * pingTime)
			for _, d := range []time.Duration{by.first, by.second} {
				p := start(d)
				_, err := p.Lock("a").Lock(t.Context(), distlock.WaitAtMost(20*time.Second))
				wantErr(t, err, distlock.ErrHeld)
				_ = p.Close(t.Context())
				time.Sleep(2 * time.Minute)
			}
			if err := g.Err(); err != nil {
				t.Fatalf("it lost its lock: %v: the test proves nothing", err)
			}
			a.store.Set(nil)
			time.Sleep(2 * pingTime)
			assert.NoErr(t, g.Err())
		})
	}
}

// A contender does not write to the ping of MongoDB's lock manager.
func TestTryLock_ForeignHolder_ItsPingIsNotWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		err := errors.Join(
			w.mem.Put(catalog.LocksCollection,
				bson.D{{Key: "_id", Value: "a"}, {Key: "state", Value: int32(2)},
					{Key: "process", Value: "mongos:1"}, {Key: "ts", Value: bson.NewObjectID()}}),
			w.mem.Put(catalog.PingsCollection,
				bson.D{{Key: "_id", Value: "mongos:1"}, {Key: "ping", Value: time.Unix(0, 0)}}))
		assert.Must(t, err)
		before := w.mem.Document(catalog.PingsCollection, "mongos:1").String()
		for range 3 {
			wantErr(t, w.once(20*time.Second, nil), distlock.ErrHeld)
			time.Sleep(time.Hour)
		}
		assert.Equal(t, w.mem.Document(catalog.PingsCollection, "mongos:1").String(), before,
			"it is %s, and was %s")
	})
}

// A read of many locks records one observation of each silent process. If the server refuses
// observations, each read sends only one.
func TestSights_ManyLocks_OneOfAProcessALook(t *testing.T) {
	const n = 60
	for name, ask := range map[string]func(b *proc, lock string){
		"waited for": func(b *proc, lock string) { b.queue(lock) },
		"tried":      func(b *proc, lock string) { _, _ = b.try(lock) },
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			dead, other, b := w.start(nil), w.start(nil), w.start(nil)
			for i := range n {
				dead.mustTry(fmt.Sprint("l", i))
			}
			other.mustTry("l")
			for i := range n {
				ask(b, fmt.Sprint("l", i))
			}
			ask(b, "l")
			var took atomic.Bool
			var since, most atomic.Int64 // observations since the last read
			b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				switch {
				case call.Op == fault.Look:
					since.Store(0)
				case call.Op == fault.Witness:
					most.Store(max(most.Load(), since.Add(1)))
					if !took.Load() {
						return fault.Refused(call.Op)
					}
				}
				return apply()
			})
			dead.kill()
			other.kill()
			time.Sleep(5 * time.Minute)
			assert.Equal(t, most.Load(), 1, "%d sights in one look that the server did not take, want %d")
			took.Store(true)
			before := b.store.Count(fault.Witness)
			time.Sleep(3 * time.Minute)
			assert.Equal(t, b.store.Count(fault.Witness)-before, 2,
				"%d sights of 2 silent processes, want %d")
		})
	}
}
