package claim

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/locktest"
	"mongodlm/internal/test/memrows"
)

// Close gives back a row even if the process did not receive the reply to its claim.
func TestClose_LostReply_RowIsGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 2)
		p := w.start(Config{Workers: 2})
		var closing atomic.Bool
		var claims atomic.Int64
		p.gate.Set(func(_ context.Context, command string, apply func() error) error {
			if command == "claimed" && claims.Load() > 0 && !closing.Load() {
				return errCut
			}
			if command == "claim" && claims.Add(1) > 1 {
				_ = apply()
				return errCut
			}
			return apply()
		})
		stop := p.run(t, stay)
		w.settle(time.Minute, are(Counts{Claimed: 2}))
		time.Sleep(time.Minute)
		closing.Store(true)
		stop()
		assert.NoErr(t, p.Close(t.Context()))
		w.want(Counts{Ready: 2})
	})
}

// When its context ends, Serve first waits for the handlers for the grace time. Then it ends the
// contexts of the remaining handlers and closes the queue.
func TestServe_AtItsEnd_HandlersFinish(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 4)
		p := w.start(Config{Workers: 2})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		began := time.Now()
		go func() {
			result <- p.Serve(ctx, 30*time.Second, func(ctx context.Context, row *Row[item]) error {
				if row.Doc.ID == 0 {
					time.Sleep(20 * time.Second)
					return ctx.Err()
				}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		time.Sleep(time.Second)
		cancel()
		assert.NoErr(t, <-result, "Serve")
		if took := time.Since(began); took < 31*time.Second || took > 35*time.Second {
			t.Errorf("Serve returned after %v", took)
		}
		w.want(Counts{Ready: 3, Done: 1})
		for _, row := range w.rows.All() {
			if row.Mark.State == rows.Ready && row.Mark.Attempts > 0 {
				t.Errorf("row %d has %d attempts, want none", number(row), row.Mark.Attempts)
			}
		}
		wantErr(t, p.Run(t.Context(), finish), ErrClosed)
	})
}

// Serve returns even if a handler ignores its context.
func TestServe_HandlerIgnoresItsEnd_Returns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		free := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Serve(ctx, time.Second, func(context.Context, *Row[item]) error { <-free; return nil })
		if err == nil || !strings.Contains(err.Error(), "handlers run") {
			t.Errorf("Serve: %v", err)
		}
		close(free)
		w.settle(time.Minute, allDone(1))
	})
}

// Serve returns nil if its context ended before the call. The next call of Serve returns ErrClosed.
func TestServe_ContextEnded_ReturnsNil(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 30 {
			p := w.start(Config{})
			assert.NoErr(t, p.Serve(ended, time.Minute, finish), "Serve")
			wantErr(t, p.Serve(ended, time.Minute, finish), ErrClosed)
		}
	})
}

// While Run runs, Serve returns ErrRunning and does not close the queue.
func TestServe_AnotherRuns_IsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		p := w.start(Config{})
		p.run(t, finish)
		time.Sleep(time.Second)
		wantErr(t, p.Serve(ended, time.Minute, finish), ErrRunning)
		w.add(0, 1)
		w.settle(time.Minute, allDone(1))
	})
}

// Close returns even if a hook waits for the end of its context.
func TestClose_HookWaitsForItsContext_Returns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{OnDead: func(ctx context.Context, _ Info) { <-ctx.Done() }})
		stop := p.run(t, func(context.Context, *Row[item]) error { return Discard(nil) })
		w.settle(time.Minute, are(Counts{Dead: 1}))
		stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.NoErr(t, p.Close(ctx), "Close")
	})
}

// If the server carries out a claim after Close, the claim does not count as an attempt.
func TestClose_ClaimAppliedLater_DoesNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{MaxAttempts: 1})
		p.gate.on(func(apply func() error) error {
			go func() { time.Sleep(time.Minute); _ = apply() }()
			return errCut
		}, "claim")
		stop := p.run(t, finish)
		time.Sleep(time.Millisecond)
		stop()
		assert.NoErr(t, p.Close(t.Context()))
		w.settle(2*time.Minute, are(Counts{Claimed: 1}))
		w.start(Config{MaxAttempts: 1}).run(t, finish)
		w.settle(10*time.Minute, allDone(1))
		assert.Equal(t, w.row(0).Mark.Attempts, 1, "%d attempts, want %d")
	})
}

// If the process with the rescue lock cannot read rows, another process takes over the rescue.
func TestRescue_RescuerCannotRead_AnotherRescues(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		first := w.start(Config{})
		first.gate.on(func(func() error) error { return errCut }, "slots", "claim")
		first.run(t, finish)
		time.Sleep(time.Minute)
		w.add(0, 1)
		second := w.start(Config{})
		second.run(t, stay)
		w.settle(time.Minute, are(Counts{Claimed: 1}))
		second.cut()
		w.start(Config{}).run(t, finish)
		w.settle(4*locktest.TakeoverTime, allDone(1))
	})
}

// OnDead is called once even if a row's own process records the row as dead just before the rescuer
// does.
func TestRescue_OwnerRecordsFirst_OnDeadIsCalledOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		var dead atomic.Int64
		cfg := Config{MaxAttempts: 1, OnDead: func(context.Context, Info) { dead.Add(1) }}
		owner := w.start(cfg)
		record := make(chan struct{})
		var recording atomic.Bool
		owner.gate.on(func(apply func() error) error {
			recording.Store(true)
			<-record
			return apply()
		}, "end")
		owner.run(t, func(context.Context, *Row[item]) error { return errors.New("broken") })
		w.settle(time.Minute, func(Counts) bool { return recording.Load() })
		other := w.start(cfg)
		other.gate.on(func(apply func() error) error {
			close(record)
			time.Sleep(time.Second)
			return apply()
		}, "end")
		other.run(t, finish)
		owner.m.Kill()
		w.settle(4*locktest.TakeoverTime, are(Counts{Dead: 1}))
		time.Sleep(time.Minute)
		assert.Equal(t, dead.Load(), 1, "OnDead was called %d times, want %d")
	})
}

// If a key becomes free while a claim waits for its reply, the handler of the chain's next row
// begins soon, even if the process was idle for an hour.
func TestChains_FreedDuringAClaim_NextBegins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows = memrows.New(rows.Options{Key: "chain"})
		free, holder := make(chan struct{}), make(chan int, 1)
		var procs [2]*proc
		var stops [2]func()
		for i := range procs {
			procs[i] = w.start(Config{Key: "chain"})
			stops[i] = procs[i].run(t, func(_ context.Context, row *Row[item]) error {
				if row.Doc.ID == 0 {
					holder <- i
					<-free
				}
				return nil
			})
		}
		time.Sleep(time.Hour)
		assert.Must(t, w.rows.Insert(t.Context(), []any{item{ID: 0, Chain: "x"}}))
		first := <-holder
		procs[1-first].gate.on(func(apply func() error) error {
			err := apply()
			time.Sleep(10 * time.Second)
			return err
		}, "claim")
		assert.Must(t, w.rows.Insert(t.Context(), []any{item{ID: 1, Chain: "x"}}))
		go stops[first]()
		time.Sleep(5 * time.Second)
		close(free)
		w.settle(time.Minute, allDone(2))
	})
}
