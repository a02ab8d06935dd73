package claim

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/locktest"
	"mongodlm/internal/test/memrows"
)

// It tries to break: processes of one queue whose locks are in two databases do not know of each
// other's holders. No row of one that lives is given to another, and the log says why.
func TestRescue_AnotherLockDatabase_RowsAreLeftAlone(t *testing.T) {
	for _, lease := range []time.Duration{0, 4 * time.Hour} {
		inBubbleSub(t, lease.String(), func(t *testing.T, w *world) {
			w.add(0, 6)
			cfg := Config{Batch: 3, InFlight: 6, Workers: 3, Lease: lease}
			a := w.startAt(w.World, 0, "one", cfg)
			b := w.startAt(locktest.New(t), 0, "two", cfg)
			var mu sync.Mutex // guards begun
			begun := map[int]int{}
			work := func(_ context.Context, row *Row[item]) error {
				mu.Lock()
				begun[row.Doc.ID]++
				mu.Unlock()
				time.Sleep(45 * time.Minute)
				return nil
			}
			stopA, stopB := a.run(t, work), b.run(t, work)
			time.Sleep(100 * time.Minute)
			if c := w.counts(); c != (Counts{Done: 6}) {
				t.Errorf("%+v, want all done", c)
			}
			stopA()
			stopB()
			for id, n := range begun {
				if n != 1 {
					t.Errorf("row %d was begun %d times", id, n)
				}
			}
			if n := w.logs.with("left alone", "another database"); n < 1 || n > 4 {
				t.Errorf("%d lines say that rows are left alone, want one for each slot: %v", n, w.logs)
			}
		})
	}
}

// It tries to break: a queue, a collection or a database is renamed while a process dies. The rows
// of its slot are rescued all the same: the slot's lock tells that it is dead, whatever its name.
func TestRescue_RenamedQueue_RowsOfDeadSlotsAreRescued(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 10)
		a, b := w.start(Config{Queue: "old", Batch: 5, InFlight: 5}), w.start(Config{Queue: "new"})
		must2(a.Claim(t.Context(), 5))
		a.cut()
		stop := b.run(t, func(context.Context, *Row[item]) error { return nil })
		w.settle(2*takeoverTime, allDone(10))
		stop()
	})
}

// A slot whose name belongs to no queue is some other program's lock: it is not tried.
func TestRescue_SlotThatIsNoQueues_IsNotTried(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		c := rows.Claim{Slot: "balancer", SlotFence: 1, Session: bson.NewObjectID(), Batch: bson.NewObjectID()}
		must2(w.rows.MarkOne(t.Context(), c, nil))
		b := w.start(Config{})
		stop := b.run(t, func(context.Context, *Row[item]) error { return nil })
		time.Sleep(2 * takeoverTime)
		stop()
		if n := w.logs.with("left alone", "balancer"); n == 0 {
			t.Errorf("nothing was told of it: %v", w.logs)
		}
		for l, err := range b.m.Inspector().Locks(context.Background()) {
			if err != nil || l.Name == "balancer" {
				t.Errorf("lock %v, %v", l, err)
			}
		}
	})
}

// With one attempt a row is begun twice at most: once more when its process has died.
func TestRescue_OneAttempt_BegunOnceMore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		var begun atomic.Int32
		for range 4 {
			p := w.start(Config{MaxAttempts: 1})
			defer p.run(t, func(ctx context.Context, _ *Row[item]) error {
				begun.Add(1)
				p.cut()
				<-ctx.Done()
				return errCut
			})()
			time.Sleep(3 * takeoverTime)
		}
		if c := w.counts(); begun.Load() != 2 || c != (Counts{Dead: 1}) {
			t.Errorf("begun %d times, %+v", begun.Load(), c)
		}
	})
}

// It tries to break: queues of one collection with two fields have one rescuer, which sees the rows of
// one of them.
func TestRescue_TwoFieldsOfOneCollection_EachHasItsRescuer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		other := &world{w.World, t, memrows.New(), w.logs} // the same documents, by the other field
		w.add(0, 1)
		other.add(0, 1)
		work := func(context.Context, *Row[item]) error { return nil }
		defer w.start(Config{}).run(t, work)()
		w.settle(time.Minute, allDone(1))
		dying := other.start(Config{Field: "thumbnail"})
		must2(dying.Claim(t.Context(), 1))
		dying.cut()
		defer other.start(Config{Field: "thumbnail"}).run(t, work)()
		other.settle(2*time.Hour, allDone(1))
	})
}

// It tries to break: a queue counts the attempts of another one whose name begins as its own.
func TestRescue_NameOfAnotherQueueBeginsAlike_ItsAttemptsAreItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		dying := w.start(Config{Queue: "a:b"})
		must2(dying.Claim(t.Context(), 1))
		dying.cut()
		rescuer := w.start(Config{Queue: "a", MaxAttempts: 1})
		must2(rescuer.Claim(t.Context(), 1))
		time.Sleep(2 * time.Hour)
		assert.Equal(t, w.counts(), (Counts{Ready: 1}), "%+v, want %+v")
	})
}
