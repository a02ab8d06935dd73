package claim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

const takeoverTime = 15 * time.Minute

// Two processes claim the same rows: each row is given to one.
func TestClaim_TwoProcesses_NoRowTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 30)
		a, b := w.start(Config{Batch: 20, InFlight: 100}), w.start(Config{Batch: 20, InFlight: 100})
		seen := map[int]bool{}
		for _, p := range []*proc{a, b, a, b} {
			for _, row := range p.take(t, 10) {
				if seen[row.Doc.ID] {
					t.Errorf("row %d was given twice", row.Doc.ID)
				}
				seen[row.Doc.ID] = true
				assert.NoErr(t, row.Done(t.Context()))
			}
		}
		assert.Equal(t, len(seen), 30, "%d rows were given, want %d")
	})
}

// A round of n rows costs three commands and one to complete, a single row one and one.
func TestRun_CommandsAnItem(t *testing.T) {
	const n = 1000
	for batch, most := range map[int]float64{1: 2.1, 100: 0.1} {
		inBubbleSub(t, fmt.Sprint("batch ", batch), func(t *testing.T, w *world) {
			w.add(0, n)
			p := w.start(Config{Workers: 16, Batch: batch})
			stop := p.run(t, func(context.Context, *Row[item]) error {
				time.Sleep(time.Millisecond)
				return nil
			})
			w.settle(time.Minute, allDone(n))
			stop()
			per := float64(p.gate.sent()) / n
			t.Logf("%.3f commands an item", per)
			if per > most {
				t.Errorf("%.3f commands an item, want at most %v: %v", per, most, p.gate.tally())
			}
		})
	}
}

// No process claims more than it may, those that wait for a worker included.
func TestClaim_InFlight_IsALimit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 100)
		p := w.start(Config{Batch: 4, InFlight: 6})
		first := p.take(t, 4)
		second := p.take(t, 4)
		if len(first) != 4 || len(second) != 2 {
			t.Fatalf("got %d and %d rows, want 4 and 2", len(first), len(second))
		}
		wantErr(t, assert.Err(p.Claim(t.Context(), 1)), ErrInFlight)
		assert.Must(t, first[0].GiveBack(t.Context()))
		assert.Equal(t, len(p.take(t, 4)), 1, "got %d rows, want %d")
		if c := w.counts(); c.Claimed != 6 {
			t.Errorf("%+v, want 6 claimed", c)
		}
	})
}

// A process that lives keeps its rows, however old they are.
func TestRescue_LivingProcess_Never(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		a, b := w.start(Config{}), w.start(Config{})
		row := a.take(t, 1)[0]
		stop := b.run(t, func(context.Context, *Row[item]) error {
			t.Error("the row was given to another")
			return nil
		})
		time.Sleep(3 * time.Hour)
		assert.NoErr(t, row.Err())
		stop()
		assert.NoErr(t, row.Done(t.Context()))
	})
}

// Clocks an hour apart: no row is given twice or lost, and the pause before a retry is what it is:
// it is counted by the server's clock, whoever looks after the row.
func TestClaim_ClocksAnHourApart_ThePauseIsTheSame(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		inBubbleSub(t, ahead.String(), func(t *testing.T, w *world) {
			w.add(0, 1)
			cfg := Config{Backoff: time.Minute}
			a, b := w.startWrong(ahead, cfg), w.start(cfg)
			assert.Must(t, a.take(t, 1)[0].Fail(t.Context(), errors.New("on purpose")))
			failed := time.Now()
			a.cut()
			var given []time.Duration
			stop := b.run(t, func(_ context.Context, row *Row[item]) error {
				if row.Fence() != 2 || row.Attempt() != 2 {
					t.Errorf("fence %d, attempt %d, want 2 of both", row.Fence(), row.Attempt())
				}
				given = append(given, time.Since(failed))
				return nil
			})
			w.settle(3*time.Hour, allDone(1))
			stop()
			if len(given) != 1 || given[0] < 48*time.Second || given[0] > 72*time.Second+7*time.Second {
				t.Errorf("given after %v, want once after about a minute", given)
			}
		})
	}
}

// The rows of a process that died are given to others when the takeover rule says so, with a larger
// fence, and the completion of the dead, should it live after all, matches nothing.
func TestRescue_DeadProcess_CompletionIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 10)
		a, b := w.start(Config{Batch: 10}), w.start(Config{Batch: 10, Workers: 4})
		old := a.take(t, 10)
		a.cut()
		b.run(t, func(_ context.Context, row *Row[item]) error {
			if row.Fence() != 2 || row.Attempt() != 2 {
				t.Errorf("fence %d, attempt %d, want 2 of both", row.Fence(), row.Attempt())
			}
			if old[0].Err() == nil {
				t.Error("the dead process still believes in its rows")
			}
			return nil
		})
		w.settle(2*takeoverTime, allDone(10))
		a.gate.set(nil)
		for _, row := range old {
			err := row.Done(t.Context())
			wantErr(t, err, ErrLost)
			wantErr(t, row.Fail(t.Context(), err), ErrFinished)
		}
	})
}

// A process that was killed with its rows at the last attempt does not come back for ever.
func TestRescue_LastAttempt_IsDead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		a, b := w.start(Config{MaxAttempts: 1}), w.start(Config{MaxAttempts: 1})
		a.take(t, 1)
		a.cut()
		b.run(t, atOnce)
		w.settle(2*takeoverTime, func(c Counts) bool { return c.Dead == 1 })
		assert.Equal(t, w.row(0).Mark.Error, rows.GivenUp, "error %q, want %q")
	})
}

// A process that ends in good order leaves its rows to others at once, and its slot to the next.
func TestClose_GivesBackAtOnce_AttemptDoesNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 5)
		a := w.start(Config{Batch: 5})
		row := a.take(t, 5)[0]
		assert.Must(t, a.Close(t.Context()))
		w.want(Counts{Ready: 5})
		wantErr(t, row.Done(t.Context()), ErrLost)
		wantErr(t, assert.Err(a.Claim(t.Context(), 1)), ErrClosed)
		b := w.start(Config{Batch: 5})
		for _, row := range b.take(t, 5) {
			if row.Attempt() != 1 || row.Fence() != 2 {
				t.Errorf("attempt %d, fence %d, want 1 and 2", row.Attempt(), row.Fence())
			}
		}
	})
}

// A failure is retried after a pause that doubles, and the row dies of the last, with its error.
func TestRun_Failures_RetryThenDead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{MaxAttempts: 4, Backoff: time.Minute})
		var at []time.Time
		stop := p.run(t, func(_ context.Context, row *Row[item]) error {
			at = append(at, time.Now())
			return errors.New(strings.Repeat("x", 3000))
		})
		w.settle(time.Hour, func(c Counts) bool { return c.Dead == 1 })
		stop()
		assert.MustEqual(t, len(at), 4, "%d attempts, want %d")
		for i, pause := 1, time.Minute; i < len(at); i, pause = i+1, 2*pause {
			if got := at[i].Sub(at[i-1]); got < pause*4/5 || got > pause*6/5+2*time.Second {
				t.Errorf("pause %d is %v, want about %v", i, got, pause)
			}
		}
		if got := w.row(0).Mark.Error; len(got) > mostError+3 || !strings.HasPrefix(got, "xxx") {
			t.Errorf("error %q", got)
		}
	})
}

// A panic is a failure, and so is the end of the goroutine; the worker goes on.
func TestRun_PanicAndGoexit_AreFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 5)
		p := w.start(Config{MaxAttempts: 1})
		stop := p.run(t, func(_ context.Context, row *Row[item]) error {
			switch row.Doc.ID {
			case 0:
				panic("at the disco")
			case 1:
				runtime.Goexit()
			case 2:
				return (*os.PathError)(nil) // whose text is a panic
			case 3:
				return (*net.OpError)(nil) // has a text, and what it wraps is a panic
			}
			return nil
		})
		w.settle(time.Minute, func(c Counts) bool { return c.Dead == 4 && c.Done == 1 })
		stop()
		assert.Equal(t, w.row(0).Mark.Error, "panic: at the disco", "error %q, want %q")
	})
}

// At the end the handlers' contexts end, what was not begun is given back, and Run waits for a
// handler that takes its time.
func TestRun_Drain_WaitsForHandlersAndGivesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 20)
		p := w.start(Config{Workers: 2, Batch: 10})
		stop := p.run(t, func(ctx context.Context, row *Row[item]) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			if row.Doc.ID == 0 {
				return nil // it was done all the same
			}
			return ctx.Err()
		})
		synctest.Wait()
		begun := time.Now()
		stop()
		if took := time.Since(begun); took < time.Minute {
			t.Errorf("Run returned after %v, before its handlers", took)
		}
		w.want(Counts{Ready: 19, Done: 1})
		assert.Equal(t, w.row(5).Mark.Attempts, 0, "%d attempts count, want %d")
	})
}

// A handler that never returns keeps its row, and only its row, while its process lives.
func TestRun_HandlerThatNeverReturns_KeepsItsRow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 10)
		a, b := w.start(Config{Workers: 2}), w.start(Config{Workers: 2})
		release := make(chan struct{})
		handle := func(_ context.Context, row *Row[item]) error {
			if row.Doc.ID == 0 {
				<-release
			}
			return nil
		}
		a.run(t, handle)
		b.run(t, handle)
		w.settle(time.Minute, func(c Counts) bool { return c.Done == 9 })
		time.Sleep(2 * time.Hour)
		w.want(Counts{Claimed: 1, Done: 9})
		close(release)
		w.settle(time.Minute, allDone(10))
	})
}

// A reply that is lost leaves no row claimed by nobody, nor does a command that comes late.
func TestClaim_LostReply_IsGivenBack(t *testing.T) {
	for _, batch := range []int{1, 5} {
		inBubbleSub(t, fmt.Sprint("batch ", batch), func(t *testing.T, w *world) {
			w.add(0, 5)
			p := w.start(Config{Batch: batch, Workers: 5})
			var lost atomic.Int32
			p.gate.on(func(apply func() error) error {
				switch n := lost.Add(1); {
				case n > 3:
					return apply()
				case n == 1:
					_ = apply() // at once, and nobody knows
				default:
					time.AfterFunc(time.Duration(n)*10*time.Second, func() { _ = apply() })
				}
				return errCut
			}, "mark", "mark one")
			p.run(t, atOnce)
			w.settle(5*time.Minute, allDone(5))
			time.Sleep(time.Minute)
		})
	}
}

// The same when nobody has claimed the row meanwhile: it is ready within Tend of the late command.
func TestClaim_CarriedOutLate_IsGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		late := make(chan Counts)
		p.gate.on(func(apply func() error) error {
			time.AfterFunc(time.Minute, func() {
				_ = apply()
				late <- w.counts()
			})
			return errCut
		}, "mark one")
		wantErr(t, assert.Err(p.Claim(t.Context(), 1)), errCut)
		if c := <-late; c.Claimed != 1 {
			t.Errorf("%+v after the late command, want a row claimed", c)
		}
		w.settle(7*time.Second, func(c Counts) bool { return c.Ready == 1 })
		if row := w.row(0); row.Mark.Attempts != 0 {
			t.Errorf("%+v", row.Mark)
		}
	})
}

func inBubbleSub(t *testing.T, name string, test func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

// A completion whose reply is lost is repeated until its outcome is known.
func TestRun_LostCompletion_IsRepeated(t *testing.T) {
	for _, applied := range []bool{true, false} {
		inBubbleSub(t, fmt.Sprint("applied ", applied), func(t *testing.T, w *world) {
			w.add(0, 50)
			p := w.start(Config{Batch: 10, Workers: 3})
			var handled atomic.Int32
			failures := 0 // of one goroutine
			p.gate.on(func(apply func() error) error {
				if failures++; failures > 20 {
					return apply()
				}
				if applied {
					_ = apply()
				}
				return errCut
			}, "finish")
			stop := p.run(t, func(context.Context, *Row[item]) error { handled.Add(1); return nil })
			w.settle(5*time.Minute, allDone(50))
			stop()
			assert.Equal(t, handled.Load(), 50, "handled %d times, want %d")
		})
	}
}

// An operator takes a row away from a worker: the completion says so, and the next claim stands.
func TestRow_EditedByAnOperator_CompletionIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{InFlight: 5})
		row := p.take(t, 1)[0]
		assert.Value(w.rows.GiveBack(t.Context(), row.c.row.Mark.Session, nil))(t)
		again := p.take(t, 1)[0] // by the same process and session
		var lost *LostError
		if err := row.Done(t.Context()); !errors.As(err, &lost) || lost.Fence != 1 {
			t.Errorf("error is %v, want a *LostError of fence 1", err)
		}
		assert.NoErr(t, again.Done(t.Context()))
	})
}

// A Manager that is closed under a running queue ends it.
func TestRun_ManagerClosed_Ends(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{})
		ended := make(chan error)
		go func() { ended <- p.Run(t.Context(), atOnce) }()
		synctest.Wait()
		wantErr(t, p.Run(t.Context(), atOnce), ErrRunning)
		assert.Must(t, p.m.Close(t.Context()))
		wantErr(t, <-ended, distlock.ErrClosed)
	})
}
