package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/locktest"
	"mongodlm/internal/test/memrows"
)

// Each result of a handler ends the claim as the package comment says.
func TestRun_WhatHandlersReturn_EndsTheClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 6)
		var snoozed atomic.Bool
		p := w.start(Config{MaxAttempts: 3, Workers: 6})
		p.run(t, func(_ context.Context, row *Row[item]) error {
			switch row.Doc.ID {
			case 0:
				return errors.New("broken")
			case 1:
				panic("broken")
			case 2:
				return fmt.Errorf("wrapped: %w", Discard(errors.New("never")))
			case 3:
				if row.Attempt() == 1 {
					return RetryAfter(time.Hour, errors.New("busy"))
				}
			case 4:
				if snoozed.CompareAndSwap(false, true) {
					return Snooze(2 * time.Hour)
				}
				if row.Attempt() != 1 || row.LastError() != "" {
					t.Errorf("a snooze counted: attempt %d, %q", row.Attempt(), row.LastError())
				}
			case 5:
				if row.Attempt() < 3 {
					return errors.New("not yet")
				}
				if f := row.Errors(); len(f) != 2 || f[1].Attempt != 2 || f[1].Process == "" {
					t.Errorf("failures %+v", f)
				}
			}
			return nil
		})
		w.settle(10*time.Minute, are(Counts{Retrying: 2, Dead: 3, Done: 1}))
		w.settle(3*time.Hour, are(Counts{Dead: 3, Done: 3}))
		for id, attempts := range []int64{3, 3, 1} {
			m := w.row(id).Mark
			assert.Equal(t, m.Attempts, attempts, "dead after %d attempts, want %d")
		}
		if m := w.row(0).Mark; m.Error != "broken" || len(m.Failures) != 3 || m.DeadAt.IsZero() {
			t.Errorf("%+v", m)
		}
	})
}

// If a handler times out, the attempt fails. A handler that ignores its timeout keeps its row and
// is reported once.
func TestRun_HandlerIgnoresItsTimeout_IsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 2)
		var stuck atomic.Int64
		free := make(chan struct{})
		p := w.start(Config{Timeout: time.Minute, Workers: 2,
			OnStuck: func(_ context.Context, row Info) { stuck.Add(1) }})
		p.run(t, func(ctx context.Context, row *Row[item]) error {
			if row.Doc.ID == 0 && row.Attempt() == 1 {
				<-free
			} else if row.Attempt() == 1 {
				<-ctx.Done()
				wantErr(t, context.Cause(ctx), ErrTimeout)
			}
			return ctx.Err()
		})
		time.Sleep(10 * time.Minute)
		w.want(Counts{Claimed: 1, Done: 1})
		assert.Equal(t, w.row(1).Mark.Failures[0].Error != "", true, "a timeout is a failure: %v, want %v")
		assert.Equal(t, stuck.Load(), 1, "OnStuck was called %d times, want %d")
		assert.Equal(t, w.logs.with("does not return"), 1, "logged %d times, want %d")
		close(free)
		w.settle(time.Minute, allDone(2))
	})
}

// A row that kills its process at each attempt is dead after MaxAttempts attempts. No other row
// becomes dead.
func TestRescue_PoisonRow_DiesAloneAndReported(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 3)
		var dead atomic.Int64
		cfg := Config{MaxAttempts: 3, OnDead: func(_ context.Context, row Info) {
			if dead.Add(1); row.LastError != rows.DiedText || len(row.Errors) != 3 {
				t.Errorf("OnDead has %+v", row)
			}
		}}
		w.start(cfg).run(t, func(ctx context.Context, row *Row[item]) error {
			time.Sleep(time.Second)
			return nil
		})
		for w.counts().Dead == 0 {
			p := w.start(cfg)
			poisoned := make(chan struct{}, 10)
			p.run(t, func(ctx context.Context, row *Row[item]) error {
				if row.Doc.ID == 0 {
					poisoned <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
			select {
			case <-poisoned:
				p.cut()
			case <-time.After(time.Hour):
			}
			if w.row(0).Mark.State == rows.Done {
				return // the surviving process has handled it
			}
			time.Sleep(2 * locktest.TakeoverTime)
		}
		assert.Equal(t, w.row(0).Mark.Attempts, 3, "dead after %d attempts, want %d")
		assert.Equal(t, dead.Load(), 1, "OnDead was called %d times, want %d")
		w.want(Counts{Dead: 1, Done: 2})
	})
}

// A process gives back a row if the reply to its claim is lost, or if the server carries out the
// claim late. The attempt does not count.
func TestRun_LostReplies_AreGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 3)
		p := w.start(Config{})
		var lost atomic.Int64
		p.gate.on(func(apply func() error) error {
			switch lost.Add(1) {
			case 1: // the reply is lost
				_ = apply()
				return errCut
			case 2: // the server carries out the claim late
				go func() { time.Sleep(time.Minute); _ = apply() }()
				return errCut
			}
			return apply()
		}, "claim")
		var began []int
		p.run(t, func(_ context.Context, row *Row[item]) error {
			if row.Attempt() != 1 {
				t.Errorf("attempt %d of row %d", row.Attempt(), row.Doc.ID)
			}
			began = append(began, row.Doc.ID)
			return nil
		})
		w.settle(30*time.Second, allDone(3))
		time.Sleep(29 * time.Second)
		w.add(3, 2)
		time.Sleep(7 * time.Minute)
		w.want(Counts{Done: 5})
		slices.Sort(began)
		assert.Slices(t, began, []int{0, 1, 2, 3, 4}, "began %v, want %v")
	})
}

// If the command that ends a claim fails, the process repeats it until the end is recorded.
func TestRun_EndsFail_AreRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 2)
		p := w.start(Config{})
		var n, began atomic.Int64
		p.gate.on(func(apply func() error) error {
			switch n.Add(1) % 3 {
			case 1:
				return errCut
			case 2: // the reply is lost
				_ = apply()
				return errCut
			}
			return apply()
		}, "end")
		p.run(t, func(context.Context, *Row[item]) error { began.Add(1); return nil })
		w.settle(time.Minute, allDone(2))
		time.Sleep(time.Minute)
		assert.Equal(t, began.Load(), 2, "%d handlers began, want %d")
	})
}

// While the queue is paused, no process claims a row.
func TestPause_AllProcesses_ClaimNoRow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for range 3 {
			w.start(Config{}).run(t, finish)
		}
		w.add(0, 3)
		w.settle(time.Minute, allDone(3))
		w.rows.Pause(true)
		time.Sleep(90 * time.Second)
		w.add(3, 3)
		time.Sleep(10 * time.Minute)
		w.want(Counts{Ready: 3, Done: 3})
		w.rows.Pause(false)
		w.settle(20*time.Second, allDone(6))
	})
}

// If a process loses its slot, its handlers end before another process handles their rows.
func TestRun_SlotLost_HandlerEndsFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{})
		ended := make(chan time.Time, 1)
		p.run(t, func(ctx context.Context, row *Row[item]) error {
			select {
			case <-ctx.Done():
			case <-time.After(3 * locktest.TakeoverTime):
			}
			if row.Err() == nil {
				t.Error("Err is nil although the slot was lost")
			}
			ended <- time.Now()
			return ctx.Err()
		})
		w.settle(time.Minute, are(Counts{Claimed: 1}))
		other := w.start(Config{})
		second := make(chan time.Time, 1)
		other.run(t, func(context.Context, *Row[item]) error { second <- time.Now(); return nil })
		time.Sleep(time.Second)
		p.cut()
		if first, next := <-ended, <-second; !first.Before(next) {
			t.Errorf("the handler ended at %v, the next one began at %v", first, next)
		}
		w.settle(time.Minute, allDone(1))
	})
}

// A row that the server refuses to change does not delay other rows, and does not occupy a worker.
func TestRun_RefusedRows_OthersAreDone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 20)
		w.refuse(func(r rows.Row) bool {
			return number(r) < 3 || number(r) == 5 && r.Mark.State == rows.Claimed
		})
		p := w.start(Config{})
		p.run(t, func(_ context.Context, row *Row[item]) error { return nil })
		w.settle(time.Minute, are(Counts{Ready: 3, Claimed: 1, Done: 16}))
		assert.Equal(t, p.e.refused(), 4, "%d rows count as refused, want %d")
		assert.Equal(t, w.logs.with("set aside"), 3, "logged %d times, want %d")
		before := p.gate.Sent("claim")
		time.Sleep(10 * time.Minute)
		if n := p.gate.Sent("claim") - before; n > 120 {
			t.Errorf("%d claims in ten minutes", n)
		}
		w.refuse(func(rows.Row) bool { return false })
		w.settle(2*time.Hour, allDone(20))
	})
}

// If the server refuses more rows than a process sets aside, the process claims about once a
// second.
func TestRun_TooManyRefusedRows_ClaimsAreRare(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, mostAsides+100)
		w.refuse(func(rows.Row) bool { return true })
		p := w.start(Config{})
		p.run(t, finish)
		time.Sleep(time.Minute)
		before := p.gate.Sent("claim")
		time.Sleep(10 * time.Second)
		if n := p.gate.Sent("claim") - before; n > 40 {
			t.Errorf("%d claims in ten seconds", n)
		}
	})
}

// If the reply to a claim is lost, and the server then refuses to give the row back, the process
// still handles the other rows.
func TestRun_LostReplyOfARefusedRow_OthersAreDone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 5)
		w.refuse(func(r rows.Row) bool { return number(r) == 0 && r.Mark.State == rows.Claimed })
		p := w.start(Config{})
		var n atomic.Int64
		p.gate.on(func(apply func() error) error {
			err := apply()
			if n.Add(1) == 1 {
				return errCut
			}
			return err
		}, "claim")
		p.run(t, finish)
		w.settle(time.Minute, are(Counts{Claimed: 1, Done: 4}))
		w.refuse(func(rows.Row) bool { return false })
		w.settle(10*time.Minute, allDone(5))
	})
}

// A row that can never be claimed is logged once.
func TestRescue_OddRow_LoggedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.rows = memrows.New(rows.Options{Key: "chain"})
		odd := bson.D{{Key: "_id", Value: 0}, {Key: "chain", Value: bson.A{}}}
		assert.Must(t, w.rows.Insert(t.Context(), []any{odd}))
		w.start(Config{Key: "chain"}).run(t, finish)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, w.logs.with("can never be claimed", "is a list"), 1, "logged %d times, want %d")
	})
}

// The handler of a rescued row begins in time although the processes are idle, with and without a
// change stream.
func TestRescue_RowBesideIdleProcesses_BeginsInTime(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{false, true} {
		t.Run(map[bool]string{false: "Stream", true: "Polled"}[deaf], func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.add(0, 1)
				p := w.start(Config{})
				p.run(t, func(ctx context.Context, _ *Row[item]) error { <-ctx.Done(); return ctx.Err() })
				w.settle(time.Minute, are(Counts{Claimed: 1}))
				for range 20 {
					q := w.start(Config{})
					q.gate.deaf = deaf
					q.run(t, func(ctx context.Context, row *Row[item]) error {
						time.Sleep(30 * time.Second)
						return nil
					})
				}
				time.Sleep(time.Minute)
				p.cut()
				w.settle(2*locktest.TakeoverTime+2*time.Minute, allDone(1))
				assert.Equal(t, w.row(0).Mark.Fence, 2, "%d claims, want %d")
			})
		})
	}
}

// Run returns if the server refuses the query or the Manager is closed.
func TestRun_Hopeless_Returns(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(Config{})
		p.gate.on(func(func() error) error {
			return rows.ErrQuery
		}, "claim")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantErr(t, p.Run(ctx, finish), ErrConfig)
		q := w.start(Config{})
		assert.NoErr(t, q.m.Close(t.Context()))
		wantErr(t, q.Run(t.Context(), finish), distlock.ErrClosed)
	})
}
