package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// It tries to break: rows that wait in their own process for a worker are not renewed. They are
// given back before their lease ends, their attempt does not count, and no row dies unseen.
func TestLease_RowsThatWait_GoBackUncounted(t *testing.T) {
	for _, batch := range []int{1, 10, 30, 100} {
		inBubbleSub(t, fmt.Sprint("batch ", batch), func(t *testing.T, w *world) {
			const lease, n = time.Minute, 200
			w.add(0, n)
			cfg := Config{Lease: lease, Batch: batch, InFlight: batch + 10, Poll: 10 * time.Second}
			var mu sync.Mutex // guards handled
			handled := map[int]int{}
			work := func(ctx context.Context, row *Row[item]) error {
				mu.Lock()
				handled[row.Doc.ID]++
				mu.Unlock()
				if row.Attempt() != 1 {
					t.Errorf("row %d: attempt %d", row.Doc.ID, row.Attempt())
				}
				if row.Doc.ID < n/2 { // as fast as to claim the slow ones ahead
					time.Sleep(time.Millisecond)
					return nil
				}
				for range 3 * (row.Doc.ID % 4) {
					time.Sleep(lease / 3)
					assert.NoErr(t, row.Renew(ctx))
				}
				return ctx.Err()
			}
			stopA, stopB := w.start(cfg).run(t, work), w.start(cfg).run(t, work)
			w.settle(5*time.Hour, allDone(n))
			stopA()
			stopB()
			for id, times := range handled {
				if times != 1 {
					t.Errorf("row %d was handled %d times", id, times)
				}
			}
			if n := w.logs.with("a lease ended"); n > 0 {
				t.Errorf("%d leases of rows that waited ended", n)
			}
		})
	}
}

// It tries to break: work that is shorter than its lease is cut because its row waited before.
func TestLease_WaitedBefore_HandlerHasItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 24)
		p := w.start(Config{Lease: 15 * time.Second, InFlight: 2})
		stop := p.run(t, func(ctx context.Context, row *Row[item]) error {
			takes := time.Millisecond
			if row.Doc.ID >= 20 {
				takes = []time.Duration{5 * time.Second, 10 * time.Second}[row.Doc.ID%2]
			}
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				t.Errorf("row %d was cut: %v", row.Doc.ID, context.Cause(ctx))
			}
			return nil
		})
		w.settle(10*time.Minute, allDone(24))
		stop()
		if n := p.gate.count("renew"); n == 0 || n > 4 {
			t.Errorf("%d renewals, want some, and only of rows that had waited", n)
		}
	})
}

// It tries to break: a row that kills its process takes others with it. What its process had
// claimed beside it counts as tried only if it was begun, and is begun once more at most; the row
// itself is dead when it was tried so often.
func TestRescue_RowThatKillsItsProcess_OnlyItDies(t *testing.T) {
	for name, cfg := range map[string]Config{
		"one batch":   {Batch: 50, MaxAttempts: 3, Poll: 10 * time.Second},
		"one by one":  {InFlight: 50, MaxAttempts: 3},
		"one at once": {MaxAttempts: 3},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			const n, poison = 50, 25
			w.add(0, n)
			var tries [n]atomic.Int64
			crashed := w.killers(cfg, poison, func(row *Row[item]) {
				if row.Doc.ID == poison {
					return
				}
				time.Sleep(time.Millisecond)
				tried, counted := tries[row.Doc.ID].Add(1), int64(row.Attempt())
				if counted > tried || counted < tried-1 || tried > 2 {
					t.Errorf("row %d: attempt %d, it was begun %d times", row.Doc.ID, counted, tried)
				}
			}, 5*time.Hour, are(Counts{Done: n - 1, Dead: 1}))
			if most := cfg.MaxAttempts + 1; crashed != most && crashed != most-1 {
				t.Errorf("tried %d times, want %d, one of which nobody may have counted", crashed, most)
			}
			if m := w.row(poison).Mark; m.State != rows.Dead || m.Error != rows.GivenUp {
				t.Errorf("the row is %+v", m)
			}
		})
	}
}

// killers works on rows until all is done, and returns how many processes the poisoned row has
// killed: one comes after the other.
func (w *world) killers(cfg Config, poison int, work func(row *Row[item]), limit time.Duration,
	done func(Counts) bool) (crashed int) {
	w.t.Helper()
	over, crashes := make(chan struct{}), make(chan struct{}, 100)
	defer close(over)
	next := func() {
		p := w.start(cfg)
		p.run(w.t, func(_ context.Context, row *Row[item]) error {
			if work(row); row.Doc.ID != poison {
				return nil
			}
			p.cut()
			crashes <- struct{}{}
			<-over
			return errCut
		})
	}
	next()
	w.settle(limit, func(c Counts) bool {
		for ; len(crashes) > 0; crashed++ {
			<-crashes
			next()
		}
		return done(c)
	})
	return crashed
}

// It tries to break: a row that was rescued kills its process again, and takes others with it:
// those that are handled and not ended yet, and those of its batch. Or its attempt does not count.
func TestRescue_RowsAlone_EachIsEndedBeforeTheNextBegins(t *testing.T) {
	const n = 4
	for name, cfg := range map[string]Config{
		"one batch": {Batch: n, InFlight: 2 * n}, "one by one": {InFlight: 2 * n},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			w.add(0, n)
			a, b := w.start(Config{Batch: n, InFlight: n}), w.start(cfg)
			a.take(t, n)
			a.cut()
			b.gate.on(func(apply func() error) error {
				time.Sleep(time.Second)
				return apply()
			}, "finish")
			b.run(t, func(_ context.Context, row *Row[item]) error {
				time.Sleep(time.Millisecond)
				id, c := row.Doc.ID, w.counts()
				if c.Done != int64(id) {
					t.Errorf("row %d begins, and one before it is not ended: %+v", id, c)
				}
				if cfg.Batch > 1 && c.Claimed > 1 {
					t.Errorf("row %d begins, and others are claimed beside it: %+v", id, c)
				}
				if w.row(id).Mark.Waiting {
					t.Errorf("row %d begins, and its attempt does not count", id)
				}
				return nil
			})
			w.settle(2*takeoverTime, allDone(n))
		})
	}
}

// It tries to break: a process dies between the claim of a row and the beginning of its handler.
// That was no attempt, however often it happens.
func TestRescue_ClaimedAsItsProcessDies_DoesNotCount(t *testing.T) {
	for name, cfg := range map[string]Config{
		"one": {MaxAttempts: 2}, "batch": {MaxAttempts: 2, Batch: 3, Workers: 3},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			const n = 3
			w.add(0, n)
			for range 5 {
				p := w.start(cfg)
				p.gate.on(func(apply func() error) error {
					_ = apply()
					p.cut()
					return errCut
				}, "mark one", "mark")
				stop := p.run(t, func(_ context.Context, row *Row[item]) error {
					t.Errorf("row %d begins", row.Doc.ID)
					return nil
				})
				time.Sleep(3 * takeoverTime)
				stop()
			}
			if c := w.counts(); c.Dead > 0 {
				t.Fatalf("%+v: a row is dead that was never begun", c)
			}
			w.start(cfg).run(t, atOnce)
			w.settle(3*takeoverTime, allDone(n))
		})
	}
}

// It tries to break: what fails while something else is away is dead before that is back.
func TestBackoff_Defaults_OutlastAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const n = 200
		w.add(0, n+1)
		p := w.start(Config{Workers: 4, Tend: 10 * time.Minute, Poll: time.Minute})
		begun := time.Now()
		stop := p.run(t, func(_ context.Context, row *Row[item]) error {
			time.Sleep(100 * time.Millisecond)
			if row.Doc.ID == n || time.Since(begun) < 10*time.Hour {
				return errors.New("away")
			}
			return nil
		})
		for w.counts().Dead == 0 {
			time.Sleep(time.Minute)
		}
		stop()
		if took := time.Since(begun); took < 24*time.Hour || took > 48*time.Hour {
			t.Errorf("the first row was dead after %v, want more than a day", took)
		}
		w.want(Counts{Done: n, Dead: 1})
	})
}

// It tries to break: one slow row keeps other workers idle where InFlight is the size of a batch.
func TestRun_InFlightIsABatch_SlowRowStallsNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const n = 1000
		w.add(0, n)
		p := w.start(Config{Workers: 8, Batch: 100, InFlight: 100})
		slow := make(chan struct{})
		defer close(slow)
		p.run(t, func(_ context.Context, row *Row[item]) error {
			if row.Doc.ID == 0 {
				<-slow
			}
			time.Sleep(time.Millisecond)
			return nil
		})
		w.settle(time.Minute, func(c Counts) bool { return c.Done == n-1 })
		if per := float64(p.gate.sent()) / n; per > 0.1 {
			t.Errorf("%.3f commands an item, want at most a tenth: %v", per, p.gate.tally())
		}
	})
}

// It tries to break: a worker stays idle while rows are ready, for as long as the handlers of the
// others run: the feeder that looks for rows waits for the room of a claim that brings nothing.
func TestRun_AnotherFeederFindsNothing_IdleWorkerGetsTheNextRow(t *testing.T) {
	for i := range 10 { // which feeder sends the second claim is not known
		inBubbleSub(t, fmt.Sprint(i), func(t *testing.T, w *world) {
			w.add(0, 2)
			p := w.start(Config{Workers: 3})
			p.gate.deaf = true
			var sent atomic.Int32
			p.gate.on(func(apply func() error) error {
				if n := sent.Add(1); n > 1 { // another feeder has its turn
					time.Sleep(time.Duration(min(n, 3)) * time.Second)
				}
				return apply()
			}, "mark one")
			p.run(t, func(ctx context.Context, row *Row[item]) error {
				if row.Doc.ID < 2 {
					<-ctx.Done()
				}
				return nil
			})
			time.Sleep(time.Minute)
			w.add(2, 1)
			w.settle(time.Minute, are(Counts{Claimed: 2, Done: 1}))
		})
	}
}

// It tries to break: Run found no room while a call of Claim had it, and sleeps for ever although
// that call brought nothing.
func TestRun_ClaimHadTheRoom_RunGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{})
		p.gate.deaf = true
		p.run(t, atOnce)
		time.Sleep(10 * time.Second)
		p.gate.on(func(apply func() error) error {
			time.Sleep(3 * time.Second) // Run looks meanwhile
			return apply()
		}, "mark one")
		if got := p.take(t, 1); len(got) > 0 {
			t.Fatalf("%d rows", len(got))
		}
		p.gate.set(nil)
		w.add(0, 1)
		w.settle(time.Minute, allDone(1))
	})
}

// It tries to break: a process claims rows that its own workers will not begin for long while
// another one is idle.
func TestRun_SlowRows_ProcessesShareThem(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const n = 104
		w.add(0, n)
		var begun [2]atomic.Int32
		for i := range begun {
			w.start(Config{Workers: 4, Batch: 100}).run(t, func(context.Context, *Row[item]) error {
				begun[i].Add(1)
				time.Sleep(10 * time.Minute)
				return nil
			})
		}
		time.Sleep(9 * time.Minute)
		if c := w.counts(); c.Claimed != 8 {
			t.Errorf("%+v, want a row for each worker claimed", c)
		}
		time.Sleep(130 * time.Minute)
		if c := w.counts(); c.Done != n {
			t.Errorf("%+v, want all done: both work all the time", c)
		}
		if n, m := begun[0].Load(), begun[1].Load(); n != m {
			t.Errorf("the processes began %d and %d rows", n, m)
		}
	})
}
