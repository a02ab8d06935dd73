package ui_test

import (
	"strings"
	"testing"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// It tries to break: who waits for whom is drawn as it is: a chain through a caller that said what
// it holds, and nothing for a line of callers that hold nothing.
func TestGraph_Chain_Drawn_PlainLineIsNot(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		a, b, c := w.process(), w.process(), w.process()
		w.hold(a, "first")
		second := w.hold(b, "second")
		w.hold(a, "plain")
		w.wait(t.Context(), b, "first", distlock.Holding(second))
		w.wait(t.Context(), c, "second")
		w.wait(t.Context(), c, "plain")
		time.Sleep(2 * time.Second)
		for _, name := range []string{"first", "second"} {
			page := w.get("/lock?name=" + name)
			want(t, page, "Who waits for whom", "waits for &#34;first&#34;", "waits for &#34;second&#34;")
			lack(t, page, "in a circle")
			if n := strings.Count(page, `<g class="node`); n != 3 {
				t.Errorf("%s: %d callers are drawn, want 3", name, n)
			}
			if n := strings.Count(page, `<g class="edge`); n != 2 {
				t.Errorf("%s: %d waits are drawn, want 2", name, n)
			}
		}
		lack(t, w.get("/lock?name=plain"), "Who waits for whom")
	})
}

// It tries to break: callers that wait for each other are drawn as a circle. The search for
// deadlocks would end it, so the documents are written by hand.
func TestGraph_Circle_Drawn(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *world) {
		w.circle("red", "blue")
		page := w.get("/lock?name=red")
		want(t, page, "in a circle", `<g class="edge back"`)
		assert.Equal(t, strings.Count(page, `<g class="node stuck"`), 2,
			"%d callers are drawn as stuck, want %d")
	})
}
