package claim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// It tries to break: a handler that panics, or ends its goroutine, while it ends its claim is one
// that failed: the row is tried again, and the worker has room for others.
func TestRun_PanicWhileTheClaimIsEnded_IsAFailure(t *testing.T) {
	for name, end := range map[string]handler{
		"work panics": func(ctx context.Context, row *Row[item]) error {
			return row.DoneWith(ctx, func(context.Context) error { panic("boom") })
		},
		"work ends its goroutine": func(ctx context.Context, row *Row[item]) error {
			return row.DoneWith(ctx, func(context.Context) error { runtime.Goexit(); return nil })
		},
		"the store panics": func(ctx context.Context, row *Row[item]) error {
			return row.Done(context.WithValue(ctx, panics{}, true))
		},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			w.add(0, 3)
			p := w.start(Config{})
			p.gate.inside = &[]rows.Ending{}
			p.gate.set(func(ctx context.Context, _ string, apply func() error) error {
				if ctx.Value(panics{}) != nil {
					panic("boom")
				}
				return apply()
			})
			p.run(t, func(ctx context.Context, row *Row[item]) error {
				if row.Attempt() == 1 {
					return end(ctx, row)
				}
				return nil
			})
			w.settle(time.Minute, allDone(3))
		})
	}
}

type panics struct{}

// It tries to break: a completion in a transaction whose outcome cannot be learned is in doubt, and
// not lost: it may be called again.
func TestDoneWith_StateNotReadable_IsInDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{InFlight: 5})
		row := p.take(t, 1)[0]
		p.gate.inside = &[]rows.Ending{}
		p.gate.fail("current")
		committed := func(context.Context) error { return nil }
		assert.Must(t, row.Done(t.Context())) // as an earlier run of the transaction would do
		row.c.stage.Store(open)
		err := row.DoneWith(t.Context(), committed)
		wantErr(t, err, errCut)
		if errors.Is(err, ErrLost) {
			t.Error(err)
		}
		p.gate.set(nil)
		assert.NoErr(t, row.DoneWith(t.Context(), committed))
	})
}

// It tries to break: work that was committed is told as lost when its outcome was in doubt, since
// its document is gone by that. Work that was not committed is not told as done.
func TestDoneWith_CommittedInDoubt_IsDone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 3)
		p := w.start(Config{InFlight: 5, DeleteDone: true})
		p.gate.inside = &[]rows.Ending{}
		list := slices.Concat(p.take(t, 1), p.take(t, 1), p.take(t, 1))
		p.gate.on(func(apply func() error) error { _ = apply(); return errCut }, "commit")
		committed := func(context.Context) error { return nil }
		wantErr(t, list[0].DoneWith(t.Context(), committed), errCut)
		p.gate.set(nil)
		assert.NoErr(t, list[0].DoneWith(t.Context(), committed))
		failed := func(context.Context) error { return errBroken }
		wantErr(t, list[1].DoneWith(t.Context(), failed), errBroken)
		assert.Must(t, list[1].Done(t.Context())) // as another hand would remove it
		list[1].c.stage.Store(open)
		wantErr(t, list[1].DoneWith(t.Context(), committed), ErrLost)
		p.gate.on(func(apply func() error) error {
			p.gate.set(nil)
			_ = apply() // as another hand would, too
			return errAborted
		}, "commit")
		wantErr(t, list[2].DoneWith(t.Context(), committed), ErrLost)
	})
}

// It tries to break: claims cannot be ended, and nobody is told, or Run goes on although the server
// will never let it. What goes away by itself is told once.
func TestRun_ClaimsCannotBeEnded_IsTold(t *testing.T) {
	denied := &distlock.PrivilegeError{Namespace: "db.rows", Action: "remove"}
	for name, failure := range map[string]error{"for a while": errCut, "for ever": denied} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			w.add(0, 1)
			p := w.start(Config{DeleteDone: true})
			p.gate.on(func(func() error) error { return failure }, "finish")
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			begun := time.Now()
			err := p.Run(ctx, atOnce)
			if failure == denied {
				wantErr(t, err, denied)
			} else if assert.NoErr(t, err); time.Since(begun) < time.Hour {
				t.Error("Run did not go on")
			}
			if n := w.logs.with("ending claims failed", failure.Error()); n != 1 {
				t.Errorf("%d lines tell of it, want one: %v", n, w.logs)
			}
		})
	}
}

// It tries to break: a row that failed by itself is dead with a false cause when MaxAttempts is
// less than it was.
func TestRun_MaxAttemptsLowered_LastErrorStays(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		before := w.start(Config{Backoff: time.Second})
		for range 5 {
			w.settle(time.Hour, are(Counts{Ready: 1}))
			assert.Must(t, before.take(t, 1)[0].Fail(t.Context(), errBroken))
		}
		w.start(Config{MaxAttempts: 3}).run(t, func(context.Context, *Row[item]) error {
			t.Error("it was begun")
			return nil
		})
		w.settle(time.Hour, are(Counts{Dead: 1}))
		assert.Equal(t, w.row(0).Mark.Error, errBroken.Error(), "its last error is %q, want %q")
	})
}

// It tries to break: Run returns soon after its context when the server hangs, however many rows
// wait for a worker. They are given back in the background when the server is there again.
func TestRun_ServerHangsAtTheEnd_ReturnsSoon(t *testing.T) {
	for name, cfg := range map[string]Config{
		"one by one": {InFlight: 100}, "in batches": {InFlight: 100, Batch: 10},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			w.add(0, 300)
			p := w.start(cfg)
			quick := 50 // so that many are claimed ahead
			stop := p.run(t, func(ctx context.Context, row *Row[item]) error {
				if quick--; quick < 0 {
					<-ctx.Done()
				}
				return nil
			})
			w.settle(time.Minute, func(c Counts) bool { return c.Claimed >= 90 })
			heal := p.hang()
			begun := time.Now()
			stop()
			if took := time.Since(begun); took > time.Minute {
				t.Errorf("Run returned after %v", took)
			}
			heal()
			time.Sleep(time.Minute)
			if c := w.counts(); c.Claimed != 0 || c.Ready < 90 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// It tries to break: when Close has returned nil, no row is claimed by this process any more, at
// whatever instant of a Claim or a Run it came.
func TestClose_AtEveryInstant_NoRowIsLeft(t *testing.T) {
	for at := range 60 {
		for name, cfg := range map[string]Config{"one": {InFlight: 5}, "batch": {InFlight: 5, Batch: 5}} {
			for _, running := range []bool{false, true} {
				inBubbleSub(t, name, func(t *testing.T, w *world) {
					w.add(0, 5)
					p := w.start(cfg)
					p.take(t, 1)
					p.gate.set(func(ctx context.Context, _ string, apply func() error) error {
						time.Sleep(5 * time.Millisecond) // on its way there, whatever becomes of its context
						err := apply()
						time.Sleep(5 * time.Millisecond)
						return err
					})
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						if running {
							_ = p.Run(t.Context(), func(ctx context.Context, _ *Row[item]) error {
								time.Sleep(7 * time.Millisecond)
								return ctx.Err()
							})
							return
						}
						_, _ = p.Claim(t.Context(), 3)
					}()
					time.Sleep(time.Duration(at) * time.Millisecond)
					assert.NoErr(t, p.Close(t.Context()))
					if c := w.counts(); c.Claimed != 0 {
						t.Errorf("after %d ms, running %v: %+v", at, running, c)
					}
					<-ended
					time.Sleep(time.Second)
					if c := w.counts(); c.Claimed != 0 {
						t.Errorf("after %d ms, running %v, later: %+v", at, running, c)
					}
				})
			}
		}
	}
}

// It tries to break: pauses that cannot be counted are refused and not taken for none.
func TestConfig_EndlessPauses_AreRefused(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"Poll": {Poll: math.MaxInt64}, "Tend": {Tend: math.MaxInt64},
		"BackoffMax": {BackoffMax: math.MaxInt64}, "Lease": {Lease: math.MaxInt64},
	} {
		if list := cfg.withDefaults().problems(); len(list) != 1 {
			t.Errorf("%s: %q", name, list)
		}
	}
}

// It tries to break: a nil context is an error and no panic.
func TestQueue_NilContext_IsAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{InFlight: 5})
		row := p.take(t, 1)[0]
		var none context.Context
		for name, call := range map[string]func() error{
			"New":   func() error { _, err := New[item](none, p.m, nil, Config{}); return err },
			"Run":   func() error { return p.Run(none, atOnce) },
			"Claim": func() error { _, err := p.Claim(none, 1); return err },
			"Done":  func() error { return row.Done(none) },
			"Fail":  func() error { return row.Fail(none, nil) },
			"Renew": func() error { return row.Renew(none) },
			"DoneWith": func() error {
				return row.DoneWith(none, func(context.Context) error { return nil })
			},
			"Counts": func() error { _, err := p.Counts(none); return err },
			"Close":  func() error { return p.Close(none) },
		} {
			func() {
				defer func() {
					if v := recover(); v != nil {
						t.Errorf("%s panics: %v", name, v)
					}
				}()
				wantErr(t, call(), ErrConfig)
			}()
		}
		synctest.Wait()
		assert.NoErr(t, row.Done(t.Context()))
	})
}

// It tries to break: a row that was claimed by a command whose reply was lost, right before the
// server went away for longer than the takeover time, is ready again when it is back, although its
// process lives and claims no more.
func TestClaim_ReplyLostBeforeALongOutage_IsGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(Config{}), w.start(Config{})
		for _, p := range []*proc{a, b} {
			p.take(t, 1)
		}
		w.add(0, 1)
		a.gate.set(func(_ context.Context, command string, apply func() error) error {
			_ = apply()
			return errCut
		})
		wantErr(t, assert.Err(a.Claim(t.Context(), 1)), errCut)
		a.cut()
		b.cut()
		time.Sleep(2 * takeoverTime)
		for _, p := range []*proc{a, b} {
			p.lock.Set(nil)
			p.gate.set(nil)
		}
		w.settle(5*time.Minute, func(c Counts) bool { return c.Ready == 1 })
	})
}

// A bomb is a row whose type panics.
type bomb struct{}

func (*bomb) UnmarshalBSON([]byte) error { panic("boom") }

// It tries to break: a row that Claim cannot decode, because its type panics, stays claimed for
// ever, and takes up room, when its end is in doubt, too.
func TestClaim_DecodingPanics_TheRowFails(t *testing.T) {
	for _, cut := range []bool{false, true} {
		inBubbleSub(t, fmt.Sprint("cut ", cut), func(t *testing.T, w *world) {
			w.add(0, 2)
			p := w.start(Config{MaxAttempts: 1})
			if cut {
				p.gate.fail("finish")
			}
			bombs := &Queue[bomb]{p.e}
			for range 2 {
				list := assert.Value(bombs.Claim(t.Context(), 1))(t)
				assert.Equal(t, len(list), 0, "%d rows, want %d")
			}
			w.settle(time.Minute, func(c Counts) bool { return cut && c.Ready == 2 || c.Dead == 2 })
		})
	}
}
