package claim

import (
	"context"
	"sync"
	"testing"
	"time"
)

// It tries to break: a handler that replaces its own document removes the mark of its claim, and is
// given the row again and again, beside itself. Its context ends at the next Tend, it is alone in its
// process, and the row is set aside.
func TestRun_HandlerReplacesItsDocument_IsCancelledAndAlone(t *testing.T) {
	for name, waits := range map[string]bool{"and goes on": true, "and returns": false} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
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
				t.Errorf("%d lines say why: %v", n, w.logs.text)
			}
		})
	}
}
