package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// ended runs a handler that returns an error at the first attempt, and returns the row of then.
func (w *world) ended(cfg Config, end handler) rows.Mark {
	w.t.Helper()
	w.add(0, 1)
	p := w.start(cfg)
	p.run(w.t, func(ctx context.Context, row *Row[item]) error {
		if row.c.row.Mark.Fence == 1 {
			return end(ctx, row)
		}
		return nil
	})
	w.settle(time.Minute, func(c Counts) bool { return c.Claimed+c.Ready == 0 })
	return w.row(0).Mark
}

var errBroken = errors.New("broken")

// What a handler says of its row is what becomes of it, also when the error is wrapped, and by
// hand: a snooze is no attempt, a discarded row is dead at once, and a pause is as it was chosen.
func TestRun_WhatTheHandlerSays_BecomesOfTheRow(t *testing.T) {
	const backoff = 5 * time.Minute
	for name, c := range map[string]struct {
		err      error
		state    rows.State
		attempts int64
		pause    time.Duration
		text     string
	}{
		"snooze":              {Snooze(time.Hour), rows.Retrying, 0, time.Hour, ""},
		"discard":             {Discard(errBroken), rows.Dead, 1, 0, "broken"},
		"discard nothing":     {Discard(nil), rows.Dead, 1, 0, "discarded without a reason"},
		"retry after":         {RetryAfter(time.Hour, errBroken), rows.Retrying, 1, time.Hour, "broken"},
		"retry after nothing": {RetryAfter(time.Hour, nil), rows.Retrying, 1, time.Hour, noReason},
		"snooze, negative": {Snooze(-time.Hour), rows.Retrying, 1, backoff,
			"claim: Snooze(-1h0m0s): the pause must be zero to ten years"},
		"retry after too long": {RetryAfter(1<<62, errBroken), rows.Retrying, 1, backoff,
			"broken (claim: RetryAfter("},
		"outermost counts": {Discard(fmt.Errorf("x: %w", Snooze(time.Hour))), rows.Dead, 1, 0,
			"x: snoozed for 1h0m0s"},
	} {
		for _, way := range []string{"returned", "wrapped", "by hand"} {
			inBubbleSub(t, name+", "+way, func(t *testing.T, w *world) {
				begun, err, text := time.Now(), c.err, c.text
				if way == "wrapped" {
					if err = fmt.Errorf("mail: %w", err); text != "" {
						text = "mail: " + text
					}
				}
				m := w.ended(Config{Backoff: backoff}, func(ctx context.Context, row *Row[item]) error {
					if way == "by hand" {
						return row.Fail(ctx, err)
					}
					return err
				})
				pause := time.Duration(0)
				if !m.NotBefore.IsZero() {
					pause = m.NotBefore.Sub(begun)
				}
				if m.State != c.state || m.Attempts != c.attempts || !strings.HasPrefix(m.Error, text) ||
					text == "" && m.Error != "" || pause < c.pause*4/5 || pause > c.pause*6/5 {
					t.Errorf("%+v, pause %v, want %+v and %q", m, pause, c, text)
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
	late := func(ends func(ctx context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { <-ctx.Done(); return ends(ctx) }
	}
	says := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	discarded := func(ctx context.Context) error { return Discard(ctx.Err()) }
	inTime := func(ctx context.Context) error { time.Sleep(9 * time.Second); return ctx.Err() }
	const why = "Config.Timeout of 10s"
	for name, c := range map[string]struct {
		handle func(ctx context.Context) error
		state  rows.State
		text   string
	}{
		"its error":      {late(context.Context.Err), rows.Retrying, why},
		"its cause":      {late(context.Cause), rows.Retrying, why},
		"another error":  {late(says(errBroken)), rows.Retrying, "broken"},
		"done, too late": {late(says(nil)), rows.Done, ""},
		"discarded":      {late(discarded), rows.Dead, "Config.Timeout"},
		"in time":        {inTime, rows.Done, ""},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			cfg := Config{Timeout: 10 * time.Second, Backoff: time.Hour}
			m := w.ended(cfg, func(ctx context.Context, _ *Row[item]) error {
				begun := time.Now()
				err := c.handle(ctx)
				if took := time.Since(begun); took > cfg.Timeout {
					t.Errorf("it took %v", took)
				}
				if cause := context.Cause(ctx); cause != nil {
					wantErr(t, cause, ErrTimeout)
					wantErr(t, cause, context.DeadlineExceeded)
				}
				return err
			})
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
		p.run(t, func(ctx context.Context, _ *Row[item]) error {
			time.Sleep(time.Second)
			return ctx.Err()
		})
		w.settle(2*n*time.Second, allDone(n))
	})
}

// It tries to break: a row says of every attempt that failed which one it was, when, in which
// process and why, when its process died, too, and a failed attempt is one command still.
func TestRow_Errors_AreThoseOfAllAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		a, b := w.start(Config{}), w.start(Config{})
		fail := func(p *proc) time.Time {
			t.Helper()
			for {
				if list := p.take(t, 1); len(list) == 1 {
					sent := p.gate.count("finish", "current")
					assert.Must(t, list[0].Fail(t.Context(), fmt.Errorf("broken %d", list[0].Attempt())))
					assert.Equal(t, p.gate.count("finish", "current")-sent, 1, "%d commands, want %d")
					return time.Now()
				}
				time.Sleep(time.Second)
			}
		}
		first := fail(a)
		for len(a.take(t, 1)) == 0 {
			time.Sleep(time.Second)
		}
		a.cut()
		third := fail(b)
		var row *Row[item]
		for row == nil {
			if list := b.take(t, 1); len(list) == 1 {
				row = list[0]
			}
			time.Sleep(time.Second)
		}
		got := row.Errors()
		if len(got) != 3 || row.Attempt() != 4 {
			t.Fatalf("attempt %d after %+v", row.Attempt(), got)
		}
		for i, want := range []Failure{{1, first, a.m.Process(), "broken 1"},
			{2, got[1].At, "", "the process that had claimed it died, or lost its lock"},
			{3, third, b.m.Process(), "broken 3"}} {
			late := got[i].At.Sub(want.At).Abs()
			if want.At = got[i].At; got[i] != want || late > time.Second {
				t.Errorf("%+v, want %+v, recorded %v apart", got[i], want, late)
			}
		}
		if row.LastError() != "broken 3" {
			t.Error(row.LastError())
		}
		assert.Must(t, row.Done(t.Context()))
		if m := w.row(0).Mark; m.DoneAt.IsZero() || time.Since(m.DoneAt).Abs() > time.Second {
			t.Errorf("done at %v", m.DoneAt)
		}
	})
}

// It tries to break: however often and with whatever texts a row fails, it grows by about 10 KB.
func TestRow_ErrorsForEver_AreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		failed := 0
		stop := w.start(Config{MaxAttempts: 60, Backoff: time.Second, BackoffMax: time.Second}).run(t,
			func(_ context.Context, row *Row[item]) error {
				failed++
				if list := row.Errors(); len(list) != min(failed-1, 10) ||
					failed > 1 && list[len(list)-1].Attempt != failed-1 {
					t.Errorf("failure %d after %+v", failed, list)
				}
				return fmt.Errorf("%d %s", failed, strings.Repeat("\xffé", 100_000))
			})
		w.settle(10*time.Minute, func(c Counts) bool { return c.Dead == 1 })
		stop()
		bytes := 0
		for _, f := range w.row(0).Mark.Failures {
			bytes += len(f.Error) + len(f.Process)
		}
		m := w.row(0).Mark
		if bytes > 10_000 || m.DeadAt.IsZero() || len(m.Failures) != rows.MostFailures {
			t.Errorf("%d bytes of %d failures, dead at %v", bytes, len(m.Failures), m.DeadAt)
		}
	})
}
