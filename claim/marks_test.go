package claim

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"mongodlm/internal/rows"
)

// It tries to break: a handler that replaces its own document removes the mark of its claim, and is
// given the row again and again, beside itself. Its context ends at the next Tend, it is alone in
// its process, and the row is set aside.
func TestRun_HandlerReplacesItsDocument_IsCancelledAndAlone(t *testing.T) {
	for _, waits := range []bool{true, false} {
		inBubbleSub(t, fmt.Sprintf("goes on %v", waits), func(t *testing.T, w *world) {
			w.add(0, 3)
			p := w.start(Config{Workers: 4})
			var mu sync.Mutex // guards running and runs
			running, runs := 0, 0
			count := func(n int) {
				mu.Lock()
				defer mu.Unlock()
				if running += n; running > 1 {
					t.Errorf("%d handlers of one row at a time", running)
				}
				runs += max(n, 0)
			}
			stop := p.run(t, func(ctx context.Context, row *Row[item]) error {
				if row.Doc.ID > 0 {
					return nil
				}
				count(1)
				defer count(-1)
				w.rows.Strip(row.ID())
				if !waits {
					return nil
				}
				select {
				case <-ctx.Done():
					wantErr(t, context.Cause(ctx), ErrLost)
					wantErr(t, row.Err(), ErrLost)
				case <-time.After(10 * time.Second):
					t.Error("nobody told the handler that its row is lost")
				}
				time.Sleep(20 * time.Second)
				return nil
			})
			time.Sleep(50 * time.Second)
			stop()
			if c := w.counts(); runs != 1 || c.Done != 2 {
				t.Errorf("the row was given %d times, %+v", runs, c)
			}
			if n := w.logs.with("set aside", "not replace it"); n != 1 {
				t.Errorf("%d lines say why: %v", n, w.logs)
			}
		})
	}
}

// It tries to break: a row that is claimed again beside its handler stays claimed as long as
// another one of its batch is worked on.
func TestRun_ReplacedRowClaimedInABatch_IsGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		p := w.start(Config{Workers: 4, Batch: 4})
		p.run(t, func(_ context.Context, row *Row[item]) error {
			switch {
			case row.Doc.ID > 0:
				time.Sleep(time.Hour)
			case row.Attempt() == 1 && w.counts().Claimed == 1 && len(w.rows.All()) == 1:
				w.rows.Strip(row.ID())
				w.add(1, 2)
				time.Sleep(time.Second)
			}
			return nil
		})
		w.settle(5*time.Minute, are(Counts{Claimed: 2, Done: 1}))
		time.Sleep(time.Hour)
	})
}

// It tries to break: the same where the handler completes its row by itself, each way that there
// is. The row is set aside, and not given to it again at once.
func TestRow_ReplacedByItsHandler_IsSetAside(t *testing.T) {
	for name, end := range map[string]handler{
		"done":      func(ctx context.Context, row *Row[item]) error { return row.Done(ctx) },
		"fail":      func(ctx context.Context, row *Row[item]) error { return row.Fail(ctx, nil) },
		"give back": func(ctx context.Context, row *Row[item]) error { return row.GiveBack(ctx) },
		"done with": func(ctx context.Context, row *Row[item]) error {
			return row.DoneWith(ctx, func(context.Context) error { return nil })
		},
	} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			w.add(0, 1)
			p := w.start(Config{})
			p.gate.inside = &[]rows.Ending{}
			runs := 0
			stop := p.run(t, func(ctx context.Context, row *Row[item]) error {
				runs++
				time.Sleep(time.Millisecond) // else no time passes where it is given again
				w.rows.Strip(row.ID())
				wantErr(t, end(ctx, row), ErrLost)
				return nil
			})
			time.Sleep(30 * time.Second)
			if stop(); runs != 1 {
				t.Errorf("the row was given %d times", runs)
			}
		})
	}
}
