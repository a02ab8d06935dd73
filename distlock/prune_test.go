package distlock_test

import (
	"fmt"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// Names that are made up as one goes do not stay for ever, if that is asked for; what is held,
// waited for or young does, and fences rise over it.
func TestPruneLocks_FreeAndOld_AreDeleted(t *testing.T) {
	for _, on := range []bool{true, false} {
		runInBubble(t, fmt.Sprint(on), func(t *testing.T, w *world) {
			p := w.start(func(c *distlock.Config) { c.PruneLocks = on })
			fences := map[string]int64{}
			for i := range 50 {
				name := fmt.Sprint("order ", i)
				g := p.mustTry(name)
				fences[name] = g.Fence()
				w.release(g)
			}
			p.mustTry("held")
			time.Sleep(3 * 24 * time.Hour)
			w.release(p.mustTry("young"))
			time.Sleep(30 * time.Hour)
			left := len(w.mem.Documents(catalog.LocksCollection))
			if want := map[bool]int{true: 2, false: 52}[on]; left != want {
				t.Errorf("%d documents are left, want %d", left, want)
			}
			for name, fence := range fences {
				if g := p.mustTry(name); g.Fence() <= fence {
					t.Errorf("%s has fence %d after %d", name, g.Fence(), fence)
				}
			}
		})
	}
}
