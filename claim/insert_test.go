package claim

import (
	"context"
	"strings"
	"testing"
)

// A key is had once, from any process; a row with a key is like any other, and who waits for rows
// is woken by it. A key that an index could not have is refused.
func TestInsert_AKey_Once(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(Config{}), w.start(Config{})
		for i, p := range []*proc{a, b, a} {
			if inserted := must2(p.Insert(t.Context(), "order 7", item{ID: i})); inserted != (i == 0) {
				t.Errorf("call %d: inserted %v", i, inserted)
			}
		}
		stop := b.run(t, func(context.Context, *Row[item]) error { return nil })
		w.settle(takeoverTime, allDone(1))
		stop()
		if must2(a.Insert(t.Context(), "order 7", item{ID: 9})) {
			t.Error("a key whose row is done was free")
		}
		for _, key := range []string{"", strings.Repeat("x", 901), "\xff"} {
			if _, err := a.Insert(t.Context(), key, item{ID: 9}); err == nil || !strings.Contains(err.Error(), "UTF-8") {
				t.Errorf("%.5q: %v", key, err)
			}
		}
	})
}
