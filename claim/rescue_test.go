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
			w.want(Counts{Done: 6})
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
		a.take(t, 5)
		a.cut()
		b.run(t, atOnce)
		w.settle(2*takeoverTime, allDone(10))
	})
}

// A slot whose name belongs to no queue is some other program's lock: it is not tried.
func TestRescue_SlotThatIsNoQueues_IsNotTried(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		c := rows.Claim{Slot: "balancer", Session: bson.NewObjectID(), Batch: bson.NewObjectID()}
		assert.Value(w.rows.MarkOne(t.Context(), c, nil))(t)
		b := w.start(Config{})
		stop := b.run(t, atOnce)
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

// With one attempt a row is begun twice at most: once more when its process has died, whether it
// was renewed or not.
func TestRescue_OneAttempt_BegunOnceMore(t *testing.T) {
	for name, cfg := range map[string]Config{
		"not renewed": {MaxAttempts: 1}, "renewed": {MaxAttempts: 1, Lease: time.Hour},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			w.add(0, 1)
			var begun atomic.Int32
			for range 4 {
				p := w.start(cfg)
				p.run(t, func(ctx context.Context, row *Row[item]) error {
					begun.Add(1)
					if cfg.Lease > 0 {
						assert.NoErr(t, row.Renew(ctx))
					}
					p.cut()
					<-ctx.Done()
					return errCut
				})
				time.Sleep(3 * takeoverTime)
			}
			if c := w.counts(); begun.Load() != 2 || c != (Counts{Dead: 1}) {
				t.Errorf("begun %d times, %+v", begun.Load(), c)
			}
		})
	}
}

// It tries to break: queues of one collection with two fields have one rescuer, which sees the rows
// of one of them.
func TestRescue_TwoFieldsOfOneCollection_EachHasItsRescuer(t *testing.T) {
	for name, queues := range map[string][2]Config{
		"one name":         {{}, {Field: "thumbnail"}},
		"names look alike": {{Queue: "a/b"}, {Queue: "a", Field: "b"}},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			other := *w // the same documents, by the other field
			other.rows = memrows.New()
			w.add(0, 1)
			other.add(0, 1)
			w.start(queues[0]).run(t, atOnce)
			w.settle(time.Minute, allDone(1))
			dying := other.start(queues[1])
			dying.take(t, 1)
			dying.cut()
			other.start(queues[1]).run(t, atOnce)
			other.settle(2*time.Hour, allDone(1))
		})
	}
}

// It tries to break: a queue counts the attempts of another one whose name begins as its own.
func TestRescue_NameOfAnotherQueueBeginsAlike_ItsAttemptsAreItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		dying := w.start(Config{Queue: "ab"})
		dying.take(t, 1)
		dying.cut()
		rescuer := w.start(Config{Queue: "a", MaxAttempts: 1})
		rescuer.take(t, 1)
		time.Sleep(2 * time.Hour)
		w.want(Counts{Ready: 1})
	})
}

// One process of a queue looks after the rows of the dead, and the others wait for that one to die:
// no line stands still by it.
func TestRescue_OthersWait_NoLineStandsStill(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var ps []*proc
		for range 3 {
			p := w.start(Config{})
			p.run(t, atOnce)
			ps = append(ps, p)
		}
		time.Sleep(2 * time.Hour)
		waiting := 0
		for _, p := range ps {
			s := p.m.Stats()
			if waiting += s.Waiting; s.OldestWait != 0 {
				t.Errorf("a process has waited for %v, which says that a line stands still", s.OldestWait)
			}
		}
		if waiting != 2 {
			t.Errorf("%d wait, want all but the one that looks after rows", waiting)
		}
	})
}

// It tries to break: a row that kills its process takes with it those that the other workers of the
// process are at, each time, until all of them are dead.
func TestRescue_RowKillsBesideOthers_OnlyItDies(t *testing.T) {
	for name, cfg := range map[string]Config{
		"one by one": {Workers: 8, MaxAttempts: 3}, "in batches": {Workers: 8, Batch: 20, MaxAttempts: 3},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			const n, poison = 30, 3
			w.add(0, n)
			crashed := w.killers(cfg, poison, func(row *Row[item]) {
				takes := 3 * time.Second
				if row.Doc.ID == poison {
					takes = time.Second
				}
				time.Sleep(takes)
			}, 9*time.Hour, func(c Counts) bool { return c.Done+c.Dead == n })
			if c := w.counts(); c.Dead != 1 || w.row(poison).Mark.State != rows.Dead ||
				crashed != cfg.MaxAttempts+1 {
				t.Errorf("%+v after %d crashes, want only the poison dead", c, crashed)
			}
		})
	}
}

// It tries to break: rows that a caller of Claim has died with are given together again, until one
// of them has killed so many processes that all are dead.
func TestClaim_RescuedRows_AreGivenAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const n = 5
		cfg := Config{MaxAttempts: 3, InFlight: n}
		w.start(cfg).take(t, n) // it looks after the rows of all
		w.add(0, n)
		for range cfg.MaxAttempts {
			w.settle(3*takeoverTime, func(c Counts) bool { return c.Ready == n })
			p := w.start(cfg)
			p.take(t, n)
			p.cut()
		}
		w.settle(3*takeoverTime, func(c Counts) bool { return c.Ready == n-1 && c.Dead == 1 })
	})
}
