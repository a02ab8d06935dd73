package claim

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/metrics"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/locktest"
	"mongodlm/internal/test/metricstest"
)

// A cancelled row becomes dead when its handler returns or its process dies. No further handler
// begins.
func TestCancel_WhileHandled_IsDead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 4)
		var dead, began atomic.Int64
		cfg := Config{Workers: 4, OnDead: func(_ context.Context, row Info) {
			if dead.Add(1); row.LastError != rows.Cancelled {
				t.Errorf("dead of %q", row.LastError)
			}
		}}
		handler := func(ctx context.Context, row *Row[item]) error {
			began.Add(1)
			if row.Doc.ID == 2 { // fails before its process reads the cancellation
				time.Sleep(500 * time.Millisecond)
				return errors.New("broken")
			}
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), map[bool]error{true: ErrCancelled,
				false: distlock.ErrLockLost}[row.Doc.ID < 3])
			if row.Doc.ID == 0 {
				return nil
			}
			return ctx.Err()
		}
		p := w.start(cfg)
		p.run(t, handler)
		time.Sleep(100 * time.Millisecond)
		for id := range 3 {
			assert.Value(w.rows.Cancel(t.Context(), time.Now(), w.row(id).ID))(t)
		}
		w.settle(20*time.Second, are(Counts{Claimed: 1, Dead: 3}))
		w.start(cfg).run(t, handler)
		time.Sleep(time.Second)
		p.cut()
		assert.Value(w.rows.Cancel(t.Context(), time.Now(), w.row(3).ID))(t)
		w.settle(2*locktest.TakeoverTime+time.Minute, are(Counts{Dead: 4}))
		time.Sleep(time.Minute)
		assert.Equal(t, began.Load(), 4, "%d handlers began, want %d")
		assert.Equal(t, dead.Load(), 4, "OnDead was called %d times, want %d")
	})
}

// A process that was suspended during a command notices a cancellation within two minutes.
func TestCancel_ProcessWasSuspended_IsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		var reads atomic.Int64
		p.gate.on(func(apply func() error) error {
			if reads.Add(1) == 3 {
				time.Sleep(10 * time.Minute)
			}
			return apply()
		}, "claimed")
		ended := make(chan struct{})
		p.run(t, func(ctx context.Context, _ *Row[item]) error {
			<-ctx.Done()
			close(ended)
			return ctx.Err()
		})
		time.Sleep(11 * time.Minute)
		assert.Value(w.rows.Cancel(t.Context(), time.Now(), w.row(0).ID))(t)
		select {
		case <-ended:
		case <-time.After(2 * time.Minute):
			t.Error("the handler's context has not ended")
		}
	})
}

// The metrics count each outcome of a claim once. Only one process reports the number of rows in
// each state.
func TestStats_Outcomes_CountedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 6)
		k := &metricstest.Kept{}
		w.tune = func(c *distlock.Config) { c.Observer = k }
		p := w.start(Config{Workers: 6, Backoff: time.Minute})
		p.run(t, func(ctx context.Context, r *Row[item]) error {
			switch r.Doc.ID {
			case 0:
				return errors.New("fails")
			case 1:
				return Discard(errors.New("never"))
			case 2:
				return Snooze(time.Hour)
			case 3:
				w.rows.Edit(r.ID(), func(m *rows.Mark) { m.State, m.Batch = rows.Done, bson.NilObjectID })
			case 4:
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		})
		time.Sleep(900 * time.Millisecond)
		got := map[string]float64{}
		for _, outcome := range metrics.Attempts.Outcomes {
			got[outcome], _ = k.Of(metrics.Attempts, outcome, "db.rows:queue")
		}
		want := map[string]float64{"done": 2, "retrying": 1, "dead": 1, "given_back": 1, "lost": 1}
		if !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		k.Ask(t.Context())
		if n, ok := k.Of(metrics.Rows, "dead", "db.rows:queue"); !ok || n != 1 {
			t.Errorf("%v rows are dead (%v)", n, ok)
		}
		second := &metricstest.Kept{}
		w.tune = func(c *distlock.Config) { c.Observer = second }
		w.start(Config{}).run(t, finish)
		time.Sleep(time.Second)
		if n := second.Ask(t.Context()); n != 1 {
			t.Errorf("the second process reports %d samples, want only its oldest claim", n)
		}
	})
}
