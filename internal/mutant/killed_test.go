package mutant_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"mongodlm/internal/explore"
	"mongodlm/internal/mutant"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every mistake is noticed in the schedule that was made for it, and nothing is noticed there
// without the mistake.
func TestMistake_Directed_IsNoticed(t *testing.T) {
	for _, m := range mutant.All() {
		s := explore.Directed(m)
		s.Trace = true
		r := explore.Run(t, s)
		if !r.Failed() {
			t.Errorf("%d, %s: not noticed\n%s", m, m, strings.Join(r.Timeline, "\n"))
		} else {
			t.Logf("%2d  %-45s %v", m, m, r.Violations[0])
		}
		s.Mistakes = 0
		if r := explore.Run(t, s); r.Failed() {
			t.Errorf("%s: fires without the mistake: %v\n%s", m, r.Violations, strings.Join(r.Timeline, "\n"))
		}
	}
}
