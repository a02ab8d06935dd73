package claim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// It tries to break: a row says of every attempt that failed which one it was, when, in which
// process and why, when its process died, too, and a failed attempt is one command still.
func TestRow_Errors_AreThoseOfAllAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		a, b := w.start(Config{}), w.start(Config{})
		fail := func(p *proc) time.Time {
			t.Helper()
			for {
				if list := must2(p.Claim(t.Context(), 1)); len(list) == 1 {
					sent := p.gate.count("finish", "current")
					assert.Must(t, list[0].Fail(t.Context(), fmt.Errorf("broken %d", list[0].Attempt())))
					assert.Equal(t, p.gate.count("finish", "current")-sent, 1, "%d commands, want %d")
					return time.Now()
				}
				time.Sleep(time.Second)
			}
		}
		first := fail(a)
		for len(must2(a.Claim(t.Context(), 1))) == 0 {
			time.Sleep(time.Second)
		}
		a.cut()
		third := fail(b)
		var row *Row[item]
		for row == nil {
			if list := must2(b.Claim(t.Context(), 1)); len(list) == 1 {
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
			if got[i].Attempt != want.Attempt || got[i].Process != want.Process || got[i].Error != want.Error ||
				got[i].At.Sub(want.At).Abs() > time.Second {
				t.Errorf("%+v, want %+v", got[i], want)
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
				if list := row.Errors(); len(list) != min(failed-1, 10) || failed > 1 && list[len(list)-1].Attempt != failed-1 {
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
		if m := w.row(0).Mark; bytes > 10_000 || m.DeadAt.IsZero() || len(m.Failures) != rows.MostFailures {
			t.Errorf("%d bytes of %d failures, dead at %v", bytes, len(m.Failures), m.DeadAt)
		}
	})
}
