package claim

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/locktest"
	"mongodlm/internal/test/memrows"
)

// transacting is a store with transactions that never conflict.
type transacting struct{ *gate }

func (transacting) Transact(ctx context.Context, work func(context.Context) error) error {
	return work(ctx)
}

// If a process repeats the end of a claim after a rescuer has ended that claim, the command changes
// nothing, and OnDead is not called.
func TestEnd_NotApplied_RowRescued_IsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		var dead, ends atomic.Int64
		p := w.start(Config{OnDead: func(context.Context, Info) { dead.Add(1) }})
		p.gate.on(func(apply func() error) error {
			switch ends.Add(1) {
			case 1:
				return errCut
			case 2: // the process is paused, and its slot is lost
				p.m.Kill()
				time.Sleep(2*locktest.TakeoverTime + time.Minute)
			}
			return apply()
		}, "end")
		p.run(t, func(context.Context, *Row[item]) error { return Discard(errors.New("mine")) })
		w.settle(time.Minute, are(Counts{Claimed: 1}))
		other := w.start(Config{Backoff: 5 * time.Hour})
		hold := make(chan struct{})
		defer close(hold)
		other.run(t, func(context.Context, *Row[item]) error { <-hold; return nil })
		time.Sleep(2*locktest.TakeoverTime + 2*time.Minute)
		if state := w.row(0).Mark.State; ends.Load() < 2 || state == rows.Dead || dead.Load() > 0 {
			t.Errorf("%d ends were sent, the row is %v, OnDead was called %d times", ends.Load(), state,
				dead.Load())
		}
	})
}

// If a handler returns and DoneWith still runs in a goroutine of the handler, OnStuck is called.
func TestDoneWith_InAGoroutine_DoesNotReturn_IsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 2)
		free := make(chan struct{})
		defer close(free)
		var stuck atomic.Int64
		p := w.start(Config{OnStuck: func(context.Context, Info) { stuck.Add(1) }})
		p.e.store = transacting{p.gate}
		p.run(t, func(ctx context.Context, row *Row[item]) error {
			if row.Doc.ID == 0 {
				go func() { _ = row.DoneWith(ctx, func(context.Context) error { <-free; return nil }) }()
				time.Sleep(time.Second)
			}
			return nil
		})
		time.Sleep(24 * time.Hour)
		assert.Equal(t, stuck.Load(), 1, "OnStuck was called %d times, want %d")
	})
}

// The context of a handler does not end when DoneWith returns.
func TestDoneWith_HandlerGoesOn_ContextLasts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		p.e.store = transacting{p.gate}
		p.run(t, func(ctx context.Context, row *Row[item]) error {
			assert.NoErr(t, row.DoneWith(ctx, func(context.Context) error { return nil }))
			select {
			case <-ctx.Done():
				t.Errorf("the context ended: %v", context.Cause(ctx))
			case <-time.After(20 * time.Second):
			}
			return nil
		})
		time.Sleep(time.Minute)
	})
}

// Rows with the key null delay no other chain. While these rows wait for their key, a process sends
// few commands.
func TestChains_KeyNull_DelaysNoOtherChain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows = memrows.New(rows.Options{Key: "chain"})
		for i := range 2 {
			doc := bson.D{{Key: "_id", Value: i}, {Key: "chain", Value: nil}}
			assert.Must(t, w.rows.Insert(t.Context(), []any{doc}))
		}
		for i := range 100 {
			assert.Must(t, w.rows.Insert(t.Context(), []any{item{ID: 10 + i, Chain: "x"}}))
		}
		free := make(chan struct{})
		p := w.start(Config{Key: "chain", Workers: 3})
		p.gate.Set(func(_ context.Context, _ string, apply func() error) error {
			time.Sleep(time.Millisecond)
			return apply()
		})
		p.run(t, func(_ context.Context, row *Row[item]) error {
			if row.Doc.ID == 0 {
				<-free
			}
			return nil
		})
		w.settle(time.Minute, are(Counts{Done: 100, Claimed: 1, Ready: 1}))
		before := p.gate.Sent("claim", "held")
		time.Sleep(time.Minute)
		if n := p.gate.Sent("claim", "held") - before; n > 100 {
			t.Errorf("%d commands in a minute", n)
		}
		close(free)
		w.settle(time.Minute, allDone(102))
	})
}

// If a row is cancelled and the reply to its claim is lost, DeadAt is the time at which the process
// ends the claim.
func TestCancel_ClaimOfALostReply_DeadSinceNow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		var claims atomic.Int64
		p.gate.on(func(apply func() error) error {
			if claims.Add(1) > 1 {
				return apply()
			}
			assert.Must(t, apply())
			assert.Value(w.rows.Cancel(context.Background(), time.Now(), w.row(0).ID))(t)
			return errCut
		}, "claim")
		p.run(t, finish)
		time.Sleep(time.Minute)
		if m := w.row(0).Mark; m.State != rows.Dead || time.Since(m.DeadAt) > time.Minute {
			t.Errorf("the row is %v since %v", m.State, m.DeadAt)
		}
	})
}
