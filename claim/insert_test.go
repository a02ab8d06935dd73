package claim

import (
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
)

// A key is had once, from any process; a row with a key is like any other, and who waits for rows
// is woken by it. A key that an index could not have is refused.
func TestInsert_AKey_Once(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(Config{}), w.start(Config{})
		insert := func(p *proc, id int) bool {
			return assert.Value(p.Insert(t.Context(), "order 7", item{ID: id}))(t)
		}
		for i, p := range []*proc{a, b, a} {
			assert.Equal(t, insert(p, i), i == 0, "inserted: %v, want %v")
		}
		stop := b.run(t, atOnce)
		w.settle(takeoverTime, allDone(1))
		stop()
		if insert(a, 9) {
			t.Error("a key whose row is done was free")
		}
		for _, key := range []string{"", strings.Repeat("x", 901), "\xff"} {
			_, err := a.Insert(t.Context(), key, item{ID: 9})
			if err == nil || !strings.Contains(err.Error(), "UTF-8") {
				t.Errorf("%.5q: %v", key, err)
			}
		}
	})
}
