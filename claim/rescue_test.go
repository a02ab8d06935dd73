package claim

import (
	"context"
	"errors"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/locktest"
	"mongodlm/internal/test/memrows"
)

func stay(ctx context.Context, _ *Row[item]) error { <-ctx.Done(); return context.Cause(ctx) }

// A process does not rescue rows whose slot is in another database, because it cannot detect that
// their holder is dead.
func TestRescue_AnotherLockDatabase_RowsAreLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 2)
		other := w.startAt(locktest.New(t), clock.System(), "elsewhere", Config{})
		other.run(t, stay)
		w.settle(time.Minute, are(Counts{Ready: 1, Claimed: 1}))
		w.start(Config{}).run(t, finish)
		time.Sleep(3 * locktest.TakeoverTime)
		w.want(Counts{Claimed: 1, Done: 1})
		assert.Equal(t, w.logs.with("left alone", "another database"), 1, "logged %d times, want %d")
	})
}

// A process rescues the rows of a dead process, even if the slot has the name of another queue. The
// attempts of these rows fail.
func TestRescue_RenamedQueue_RowsOfDeadSlotsAreRescued(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		old := w.start(Config{Queue: "old"})
		old.run(t, stay)
		w.settle(time.Minute, are(Counts{Claimed: 1}))
		w.start(Config{Queue: "new"}).run(t, func(_ context.Context, row *Row[item]) error {
			if row.Attempt() != 2 || row.LastError() != rows.DiedText || len(row.Errors()) != 1 ||
				row.Errors()[0].Attempt != 1 || row.Errors()[0].Process != "" {
				t.Errorf("attempt %d after %q, %+v", row.Attempt(), row.LastError(), row.Errors())
			}
			return nil
		})
		time.Sleep(time.Second)
		old.cut()
		w.settle(2*locktest.TakeoverTime+time.Minute, allDone(1))
	})
}

// Another process wakes the retries that a closed process has left, and removes old done rows.
func TestRescue_RetriesAndDoneRows_OfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 3)
		p := w.start(Config{Backoff: 5 * time.Minute})
		stop := p.run(t, func(_ context.Context, row *Row[item]) error {
			if row.Doc.ID == 0 {
				return errors.New("broken")
			}
			return nil
		})
		w.settle(time.Minute, are(Counts{Retrying: 1, Done: 2}))
		stop()
		assert.NoErr(t, p.Close(t.Context()))
		w.start(Config{KeepDone: time.Hour}).run(t, finish)
		w.settle(10*time.Minute, allDone(3))
		w.settle(2*time.Hour, are(Counts{}))
	})
}

// A process runs its own retry when the retry becomes due. It does not wait for the rescuer.
func TestRun_RetryOfThisProcess_BeginsWhenDue(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{Backoff: 2 * time.Second})
		tries := 0
		start := time.Now()
		p.run(t, func(context.Context, *Row[item]) error {
			if tries++; tries == 1 {
				return errors.New("broken")
			}
			return nil
		})
		w.settle(time.Minute, are(Counts{Done: 1}))
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the retry was done after %v", took)
		}
	})
}

// No handler begins before the due time of its row, or much later, although the clocks of the
// processes are an hour wrong.
func TestDue_WrongClocks_NoRowIsEarly(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows = memrows.New(rows.Options{Due: "execute_at"})
		for _, wrong := range []time.Duration{-time.Hour, 0, time.Hour} {
			w.startAt(w.World, locktest.WrongClock(wrong), "", Config{Due: "execute_at"}).run(t,
				func(_ context.Context, row *Row[item]) error {
					if early := time.Until(row.Doc.Due); early > 0 {
						t.Errorf("row %d began %v early", row.Doc.ID, early)
					}
					return nil
				})
		}
		time.Sleep(time.Minute)
		for i := range 20 {
			doc := item{ID: i, Due: time.Now().Add(time.Duration(i) * 10 * time.Second)}
			assert.Must(t, w.rows.Insert(t.Context(), []any{doc}))
		}
		w.settle(195*time.Second, allDone(20))
	})
}

// No handler begins if the slot is lost before the reply to the claim arrives.
func TestRun_SlotLostBeforeTheReply_NoHandlerBegins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		p.gate.on(func(apply func() error) error {
			p.m.Kill()
			time.Sleep(locktest.TakeoverTime)
			return apply()
		}, "claim")
		p.run(t, func(_ context.Context, row *Row[item]) error {
			t.Errorf("row %d is handled although the slot was lost before the process claimed it", row.Doc.ID)
			return nil
		})
		time.Sleep(locktest.TakeoverTime + time.Minute)
		w.want(Counts{Claimed: 1})
	})
}

// When the Manager is closed, it waits for a running handler before it releases the slot.
func TestClose_OfTheManager_HandlerRuns_IsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		go func() {
			err := p.Run(t.Context(), func(context.Context, *Row[item]) error {
				time.Sleep(30 * time.Second)
				return nil
			})
			assert.Is(t, err, distlock.ErrClosed)
		}()
		w.settle(time.Minute, are(Counts{Claimed: 1}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		assert.NoErr(t, p.m.Close(ctx))
		if took := time.Since(began); took < 25*time.Second {
			t.Errorf("Close returned after %v, before the handler", took)
		}
		w.want(Counts{Done: 1})
	})
}
