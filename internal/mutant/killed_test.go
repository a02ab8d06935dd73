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
// without the mistake. The log says what is noticed, and what harm there is besides where the
// oracle that fires first is the one that tells the takeover rule again.
func TestMistake_Directed_IsNoticed(t *testing.T) {
	for _, m := range mutant.All() {
		t.Run(m.String(), func(t *testing.T) {
			s := explore.Directed(m)
			r := explore.Run(t, s)
			if !r.Failed() {
				s.Trace = true
				t.Fatalf("not noticed:\n%s", strings.Join(explore.Run(t, s).Timeline, "\n"))
			}
			t.Logf("mutant %d: %v", m, r.Violations[0])
			if r.Violations[0].Rule == "rule" {
				s.HarmOnly = true
				t.Logf("mutant %d, harm: %v", m, explore.Run(t, s).Violations)
			}
			s.Mistakes, s.HarmOnly, s.Trace = 0, false, true
			if r := explore.Run(t, s); r.Failed() {
				t.Errorf("fires without the mistake: %v\n%s", r.Violations,
					strings.Join(r.Timeline, "\n"))
			}
		})
	}
}
