package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// Tries to break: a process has more callers outside of full lines than its note has room for, and
// one of them is in a circle with an outsider of another process: one of the two is told within
// five seconds, whichever came first.
func TestDeadlock_MoreOutsidersThanANoteHolds_OneIsTold(t *testing.T) {
	for _, order := range []string{"one many other", "many one other", "many one long ago other"} {
		runInBubble(t, order, func(t *testing.T, w *world) {
			var log assert.Log
			a := w.start(func(c *distlock.Config) { c.Logger = zerolog.New(&log).Level(zerolog.WarnLevel) })
			b, l := w.start(nil), w.start(nil)
			ga, gb := a.mustTry("a"), b.mustTry("b")
			many := make([]*distlock.TryGuard, 80)
			for i := range many {
				many[i] = a.mustTry(fmt.Sprint("held ", i))
			}
			for i := range 2 {
				b.mustTry(fmt.Sprint("full ", i))
				w.fill(l, fmt.Sprint("full ", i))
			}
			w.fill(l, "a")
			w.fill(l, "b")
			ctx, cancel := context.WithCancel(context.Background())
			var one, other <-chan turn
			var crowd []<-chan turn
			for step := range strings.FieldsSeq(order) {
				switch step {
				case "one":
					one = a.queueCtx(ctx, "b", distlock.Holding(ga))
				case "other":
					other = b.queueCtx(ctx, "a", distlock.Holding(gb))
				case "long":
					time.Sleep(time.Minute)
				case "many":
					for i, g := range many {
						crowd = append(crowd, a.queueCtx(ctx, fmt.Sprint("full ", i%2), distlock.Holding(g)))
					}
				}
				time.Sleep(2 * time.Second)
			}
			start := time.Now()
			select {
			case got := <-one:
				wantDeadlock(t, got.err)
			case got := <-other:
				wantDeadlock(t, got.err)
			case <-time.After(time.Minute):
				t.Fatal("nobody is told")
			}
			if took := 2*time.Second + time.Since(start); took > toldAtMost {
				t.Errorf("told after %v, want at most %v", took, toldAtMost)
			}
			time.Sleep(time.Minute)
			for _, c := range append(crowd, one, other) {
				select {
				case got := <-c:
					if errors.Is(got.err, distlock.ErrDeadlock) {
						t.Errorf("another is told as well: %v", got.err)
					}
				default:
				}
			}
			synctest.Wait()
			if n := strings.Count(log.String(), "not noted"); n != 1 {
				t.Errorf("the log tells %d times that there are too many: %s", n, log.String())
			}
			cancel()
		})
	}
}
