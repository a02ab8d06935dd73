package study

import "testing"

// Whatever the search draws is a setting that the knobs take: a death at the very start is none,
// and ended a search in its second minute.
func TestDraw_OnlyWhatTheKnobsTake(t *testing.T) {
	t.Parallel()
	g, _, _ := FindGeneration(Ours)
	for i := range 5_000 {
		drawn := draw(1, i, g)
		if _, err := Quiet().With(drawn...); err != nil {
			t.Fatalf("schedule %d: %v: %v", i, drawn, err)
		}
	}
}
