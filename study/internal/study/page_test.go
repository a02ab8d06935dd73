package study_test

import (
	"regexp"
	"strings"
	"testing"

	"mongodlm/study/internal/study"
)

// drawn returns the drawing of a case by one generation.
func drawn(t *testing.T, name, generation string) string {
	t.Helper()
	c, _, _ := study.FindCase(name)
	g, _, _ := study.FindGeneration(generation)
	page := study.Page([]study.Case{c}, []study.Generation{g}, []study.Play{set(t, name, generation)},
		nil)
	return page[strings.Index(page, "<figure"):]
}

// It tries to break what a drawing shows of a play: a takeover only where something matched, who
// waits, whom the document names, and the signs of lost replies, late commands and failed releases.
func TestPage_DrawsWhatDecides(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"two-force 2.6":        `class="take"[^§]*<title>[^<]*takeover`,
		"two-force 1.8":        `class="wait"`,
		"late-grab 1.8":        `class="late"[^§]*carried out only now`,
		"release-repeated 2.6": `class="lost"[^§]*the reply never came`,
		"release-fails 2.0":    `class="unfreed"[^§]*could not release`,
		"cut-off 3.2":          `class="named"[^§]*the document names B`,
	} {
		one, generation, _ := strings.Cut(name, " ")
		if page := drawn(t, one, generation); !regexp.MustCompile(want).MatchString(page) {
			t.Errorf("%s: no %s", name, want)
		}
	}
	if n := strings.Count(drawn(t, "two-force", "2.6"), "takeover: "); n != 1 {
		t.Errorf("%d takeovers are drawn, want that of B", n)
	}
}
