package ui

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/internal/clock"
)

// The reads of a slow server take at most a tenth of the time.
func TestCell_SlowReads_AtMostATenthOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, reads := &Server{clock: clock.System(), ctx: t.Context()}, 0
		c := cell[int]{keep: time.Second}
		for begun := time.Now(); time.Since(begun) < 100*time.Second; time.Sleep(time.Second) {
			c.get(t.Context(), s, func(context.Context) (int, error) {
				reads++
				time.Sleep(time.Second)
				return 0, nil
			})
		}
		if reads < 9 || reads > 11 {
			t.Errorf("%d reads of one second in 100 seconds", reads)
		}
	})
}

// A read that panics is a problem of the page, and does not end the program.
func TestCell_ReadPanics_IsAProblem(t *testing.T) {
	t.Parallel()
	s := &Server{clock: clock.System(), ctx: t.Context()}
	var c cell[int]
	got := c.get(t.Context(), s, func(context.Context) (int, error) { panic("a nil map") })
	if !strings.Contains(got.problem, "a nil map") {
		t.Errorf("the problem is %q", got.problem)
	}
}

// A viewer that leaves does not wait for a read that hangs. Close ends the read, and waits for it.
func TestCell_ReadHangs_ViewerLeavesAndCloseEndsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{clock: clock.System()}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		ended := false
		hangs := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return 0, ctx.Err()
		}
		viewer, leaves := context.WithTimeout(t.Context(), time.Second)
		defer leaves()
		c, began := cell[int]{limit: time.Hour}, time.Now()
		c.get(viewer, s, hangs)
		if took := time.Since(began); took != time.Second {
			t.Errorf("the viewer left after %v", took)
		}
		if s.Close(); !ended {
			t.Error("Close returned before the read")
		}
	})
}
