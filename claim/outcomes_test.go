package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mongodlm/internal/rows"
)

// ended runs a handler that returns an error at the first attempt, and returns the row as it is
// then.
func (w *world) ended(cfg Config, end func(ctx context.Context, row *Row[item]) error) (*proc, rows.Row) {
	w.t.Helper()
	w.add(0, 1)
	p := w.start(cfg)
	stop := p.run(w.t, func(ctx context.Context, row *Row[item]) error {
		if row.c.row.Mark.Fence == 1 {
			return end(ctx, row)
		}
		return nil
	})
	w.t.Cleanup(stop)
	w.settle(time.Minute, func(c Counts) bool { return c.Claimed+c.Ready == 0 })
	return p, w.row(0)
}

var errBroken = errors.New("broken")

// What a handler says of its row is what becomes of it, also when the error is wrapped, and by
// hand: a snooze is no attempt, a discarded row is dead at once, and a pause is the one that was
// chosen.
func TestRun_WhatTheHandlerSays_BecomesOfTheRow(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		state    rows.State
		attempts int64
		pause    time.Duration
		text     string
	}{
		"snooze":               {Snooze(time.Hour), rows.Retrying, 0, time.Hour, ""},
		"discard":              {Discard(errBroken), rows.Dead, 1, 0, "broken"},
		"discard nothing":      {Discard(nil), rows.Dead, 1, 0, "discarded without a reason"},
		"retry after":          {RetryAfter(time.Hour, errBroken), rows.Retrying, 1, time.Hour, "broken"},
		"retry after nothing":  {RetryAfter(time.Hour, nil), rows.Retrying, 1, time.Hour, "failed without a reason"},
		"snooze, negative":     {Snooze(-time.Hour), rows.Retrying, 1, 5 * time.Minute, "claim: Snooze(-1h0m0s): the pause must be zero to ten years"},
		"retry after too long": {RetryAfter(1<<62, errBroken), rows.Retrying, 1, 5 * time.Minute, "broken (claim: RetryAfter("},
		"outermost counts":     {Discard(fmt.Errorf("x: %w", Snooze(time.Hour))), rows.Dead, 1, 0, "x: snoozed for 1h0m0s"},
	} {
		for _, way := range []string{"returned", "wrapped", "by hand"} {
			inBubbleSub(t, name+", "+way, func(t *testing.T, w *world) {
				begun, err, text := time.Now(), c.err, c.text
				if way == "wrapped" {
					if err = fmt.Errorf("mail: %w", err); text != "" {
						text = "mail: " + text
					}
				}
				_, row := w.ended(Config{Backoff: 5 * time.Minute}, func(ctx context.Context, row *Row[item]) error {
					if way == "by hand" {
						return row.Fail(ctx, err)
					}
					return err
				})
				m, pause := row.Mark, time.Duration(0)
				if !m.NotBefore.IsZero() {
					pause = m.NotBefore.Sub(begun)
				}
				if m.State != c.state || m.Attempts != c.attempts || !strings.HasPrefix(m.Error, text) ||
					text == "" && m.Error != "" || pause < c.pause*4/5 || pause > c.pause*6/5 {
					t.Errorf("%+v, pause %v, want %s after %v with %d attempts and %q", m, pause, c.state, c.pause, c.attempts, text)
				}
			})
		}
	}
}

// It tries to break: a row that is snoozed for ever is never dead, and has its last error still.
func TestSnooze_ForEver_IsNoAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		begun := 0
		stop := w.start(Config{MaxAttempts: 2}).run(t, func(_ context.Context, row *Row[item]) error {
			if begun++; begun == 1 {
				return errBroken
			}
			if row.Attempt() != 2 || row.LastError() != errBroken.Error() {
				t.Errorf("attempt %d, last error %q", row.Attempt(), row.LastError())
			}
			return Snooze(10 * time.Second)
		})
		time.Sleep(10 * time.Minute)
		stop()
		if m := w.row(0).Mark; begun < 30 || m.State == rows.Dead || m.Attempts != 1 {
			t.Errorf("begun %d times, %+v", begun, m)
		}
	})
}

// A row whose handler gives it up for good because Run is to end is not discarded: nobody knows
// that it cannot be done. A snooze is what it says.
func TestRun_WhatTheHandlerSaysAtTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		wrap  func(error) error
		state rows.State
	}{
		"discard":     {Discard, rows.Ready},
		"retry after": {func(err error) error { return RetryAfter(time.Hour, err) }, rows.Ready},
		"snooze":      {func(error) error { return Snooze(time.Hour) }, rows.Retrying},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			w.add(0, 1)
			p := w.start(Config{})
			stop := p.run(t, func(ctx context.Context, row *Row[item]) error {
				<-ctx.Done()
				return c.wrap(ctx.Err())
			})
			w.settle(time.Minute, func(c Counts) bool { return c.Claimed == 1 })
			stop()
			if m := w.row(0).Mark; m.State != c.state || m.Attempts != 0 {
				t.Errorf("%+v, want it %s and not tried", m, c.state)
			}
		})
	}
}

// A handler's context ends with its timeout, from when the handler began; that is a failure which
// says so, unless the work was done after all.
func TestRun_Timeout_IsAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		handle func(ctx context.Context) error
		state  rows.State
		text   string
	}{
		"its error":      {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, rows.Retrying, "Config.Timeout of 10s"},
		"its cause":      {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, rows.Retrying, "Config.Timeout of 10s"},
		"another error":  {func(ctx context.Context) error { <-ctx.Done(); return errBroken }, rows.Retrying, "broken"},
		"done, too late": {func(ctx context.Context) error { <-ctx.Done(); return nil }, rows.Done, ""},
		"discarded":      {func(ctx context.Context) error { <-ctx.Done(); return Discard(ctx.Err()) }, rows.Dead, "Config.Timeout"},
		"in time": {func(ctx context.Context) error {
			time.Sleep(9 * time.Second)
			return ctx.Err()
		}, rows.Done, ""},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			_, row := w.ended(Config{Timeout: 10 * time.Second, Backoff: time.Hour}, func(ctx context.Context, _ *Row[item]) error {
				begun := time.Now()
				err := c.handle(ctx)
				if took := time.Since(begun); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
				if cause := context.Cause(ctx); cause != nil && !(errors.Is(cause, ErrTimeout) && errors.Is(cause, context.DeadlineExceeded)) {
					t.Errorf("the cause is %v", cause)
				}
				return err
			})
			m := row.Mark
			if m.State != c.state || m.Attempts != 1 || !strings.Contains(m.Error, c.text) {
				t.Errorf("%+v, want it %s and %q", m, c.state, c.text)
			}
			if n := strings.Count(m.Error, "Config.Timeout"); c.text != "" && n != 1 {
				t.Errorf("%q names the timeout %d times", m.Error, n)
			}
		})
	}
}

// It tries to break: the time for which a row has waited for its worker is not the handler's.
func TestRun_Timeout_BeginsWithTheHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const n = 40
		w.add(0, n)
		p := w.start(Config{Batch: 10, InFlight: 30, Poll: time.Minute, Timeout: 2 * time.Second})
		stop := p.run(t, func(ctx context.Context, _ *Row[item]) error {
			time.Sleep(time.Second)
			return ctx.Err()
		})
		defer stop()
		w.settle(2*n*time.Second, allDone(n))
	})
}
