package claim

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// Work hangs although its process lives: its context ends before anyone has the row, another
// process gets the row after the lease, and what the first one says later changes nothing.
func TestLease_HangingHandler_RowIsRescued(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const lease = 4 * time.Minute
		w.add(0, 1)
		a := w.start(Config{Lease: lease})
		claimed := time.Now()
		release := make(chan struct{})
		var first atomic.Pointer[Row[item]]
		stopA := a.run(t, func(ctx context.Context, row *Row[item]) error {
			if row.Fence() > 1 {
				return nil
			}
			first.Store(row)
			<-ctx.Done()
			if after := time.Since(claimed); after < lease*3/4-time.Second || after > lease*3/4+time.Second {
				t.Errorf("the context ended after %v", after)
			}
			wantErr(t, context.Cause(ctx), ErrLost)
			<-release
			return nil
		})
		time.Sleep(time.Second)
		b := w.start(Config{Lease: lease})
		var second atomic.Int64
		stopB := b.run(t, func(_ context.Context, row *Row[item]) error {
			second.Store(int64(time.Since(claimed)))
			wantErr(t, first.Load().Err(), ErrLost)
			wantErr(t, first.Load().Renew(t.Context()), ErrLost)
			return nil
		})
		w.settle(time.Hour, allDone(1))
		if after := time.Duration(second.Load()); after < lease || after > lease*7/4 {
			t.Errorf("the row was rescued after %v, want soon after %v", after, lease)
		}
		close(release)
		time.Sleep(time.Minute)
		stopA()
		stopB()
		assert.Equal(t, w.rows.Dones(w.row(0).ID), 1, "the row was marked done %d times, want %d")
	})
}

// It tries to break: a row that the server refuses to change when its lease has ended is tried at
// every look, and logged each time as if the look had failed. It is set aside, told once, counted.
func TestLease_RefusedAtItsEnd_IsSetAside(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		a := w.start(Config{Lease: time.Minute})
		a.take(t, 1)
		w.refuse(func(rows.Row) bool { return true })
		time.Sleep(time.Hour)
		c, err := a.Counts(t.Context())
		told, said := w.logs.with("set aside"), w.logs.with("failed validation")
		if err != nil || c != (Counts{Claimed: 1, Refused: 1}) || told != 1 || said != 1 {
			t.Errorf("%+v, %v, %v", c, err, w.logs)
		}
		w.rows.Refuse(nil)
		w.settle(time.Hour, are(Counts{Ready: 1}))
	})
}

// It tries to break: the rescuer of another queue counts the attempts of a row as its own, and ends
// when the slot of one is no queue's.
func TestLease_EndedBeforeAnotherQueue_ItsAttemptsAreItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		rescuer := w.start(Config{Queue: "b", MaxAttempts: 1, OnDead: func(context.Context, Info) {
			t.Error("a row is dead")
		}})
		rescuer.take(t, 1)
		w.add(0, 2)
		a := w.start(Config{Queue: "a", Lease: time.Minute})
		a.gate.fail("expire")
		a.take(t, 1)
		c := rows.Claim{Slot: "balancer", Session: bson.NewObjectID(), Batch: bson.NewObjectID(),
			Lease: time.Minute}
		assert.Value(w.rows.MarkOne(t.Context(), c, nil))(t)
		w.settle(time.Hour, are(Counts{Ready: 2}))
	})
}

// Work that renews takes as long as it likes.
func TestLease_Renewed_KeepsTheRow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const lease = time.Minute
		w.add(0, 1)
		a, b := w.start(Config{Lease: lease}), w.start(Config{Lease: lease})
		handled := make(chan struct{})
		handle := func(ctx context.Context, row *Row[item]) error {
			defer close(handled) // twice would panic
			for range 100 {
				time.Sleep(lease / 2)
				assert.NoErr(t, row.Renew(ctx))
			}
			return ctx.Err()
		}
		stopA, stopB := a.run(t, handle), b.run(t, handle)
		w.settle(2*time.Hour, allDone(1))
		stopA()
		stopB()
		assert.Equal(t, w.row(0).Mark.Fence, 1, "fence %d, want %d")
	})
}
