package study_test

import (
	"reflect"
	"testing"

	"mongodlm/study/internal/study"
)

// It tries to break the search: it finds what breaks an old generation, reduces it to what can be
// played as a case and still breaks it, comes out the same from the same seed, and finds nothing in
// ours.
func TestSearch_BreaksOldGenerations_AndNotOurs(t *testing.T) {
	t.Parallel()
	g, _, _ := study.FindGeneration("1.6")
	search := study.Search{Seed: 2, Plays: 4}
	found, err := search.Run(t.Context(), g)
	if err != nil || len(found.Set) != 1 || len(found.Drawn) < 2 || found.Simulated == 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	if p := set(t, "quiet", "1.6", found.Set...); !reflect.DeepEqual(p.Outcome, found.Outcome) ||
		!p.Outcome.Bad() {
		t.Errorf("%v comes out as %v", found.Set, p.Outcome.Parts())
	}
	if again, _ := search.Run(t.Context(), g); !reflect.DeepEqual(again, found) {
		t.Errorf("%v and %v", found, again)
	}
	if p := set(t, "quiet", "1.6"); p.Outcome.Bad() {
		t.Errorf("nothing goes wrong: %v", p.Outcome.Parts())
	}
	g, _, _ = study.FindGeneration(study.Ours)
	if found, err := (study.Search{Seed: 2, Plays: 2}).Run(t.Context(), g); err != nil ||
		found.Set != nil || found.Plays != 2 {
		t.Errorf("ours: %+v, %v", found, err)
	}
}
