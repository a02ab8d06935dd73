package study_test

import (
	"strings"
	"testing"

	"mongodlm/study/internal/study"
)

// rows plays a case by one generation and returns its rows as strings such as "A text".
func rows(t *testing.T, name, generation string) (lines []string) {
	t.Helper()
	p := set(t, name, generation)
	for _, r := range p.Rows(study.Verdict{}) {
		who := "server"
		if r.Process >= 0 {
			who = p.Processes[r.Process].Name
		}
		lines = append(lines, who+" "+r.Text)
	}
	return lines
}

// inOrder requires that lines contain the texts in this order.
func inOrder(t *testing.T, lines []string, texts ...string) {
	t.Helper()
	at := 0
	for _, text := range texts {
		for ; at < len(lines) && !strings.Contains(lines[at], text); at++ {
		}
		if at == len(lines) {
			t.Errorf("no %q in this order %q:\n%s", text, texts, strings.Join(lines, "\n"))
			return
		}
		at++
	}
}

// A slow command has one row for its sending and one row for its answer. Its effect is before the
// answer.
func TestRows_SlowCommand_EffectBeforeAnswer(t *testing.T) {
	t.Parallel()
	inOrder(t, rows(t, "two-force", "1.8"), "C take over (update locks): sent [slow]",
		"B has the lock", "server state 0", "C take over (update locks): answered: n: 1",
		"C has the lock")
	inOrder(t, rows(t, "two-force", "2.6"), "C take over (update locks): sent [slow]",
		"B has the lock", "C take over (update locks): answered: n: 0")
	inOrder(t, rows(t, "finalize-late", "3.2"), "A grab (findAndModify locks): sent", "server ts",
		"B has the lock", "A grab (findAndModify locks): answered")
}

// The rows of a release report a lock that is free although no document matched, a failed release
// that is queued, and a release that inserts no document.
func TestRows_OfRelease_SayWhatItDid(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][]string{
		"1.8 dead-holder": {"A insert (insert locks)", "server state 0", "A grab"},
		"2.6 pause":       {"A release (update locks): n: 0", "A cannot release: nothing matched"},
		"3.2 pause":       {"A counts it as released"},
		"2.6 release-fails": {"A queues the release", "A release (update locks): n: 1",
			"server state 0"},
		"2.0 release-by-id":   {"A cannot release: nothing matched"},
		"1.8 release-by-id":   {"A has released"},
		"ours release-by-id":  {"A cannot release"},
		"3.2 grab-reply-lost": {"A release (findAndModify locks): state 0", "server state 0"},
	} {
		release, of, _ := strings.Cut(name, " ")
		inOrder(t, rows(t, of, release), texts...)
	}
}

// In resumes-in-time the holder pings between the decision and the command, in every generation.
// The old generations take the lock nevertheless.
func TestRows_ResumesInTime_PingsBetween(t *testing.T) {
	t.Parallel()
	for _, g := range study.Generations() {
		takes := "B take over (update locks): sent"
		then := "B take over (update locks): answered: n: 1"
		switch g.Name {
		case "3.2":
			takes, then = "B take over (findAndModify locks): sent", "B has the lock"
		case study.Ours:
			takes, then = "B condemn: sent", "B condemn: answered: document is not as expected"
		}
		inOrder(t, rows(t, "resumes-in-time", g.Name), takes, "A runs again", "A ping", then)
	}
}

// A frozen process does nothing and notices nothing until it runs again.
func TestMarks_OfAFrozenProcess_None(t *testing.T) {
	t.Parallel()
	frozen := 0
	outcomes(func(_ study.Case, _ study.Generation, p study.Play) {
		for _, b := range p.Bars {
			if b.Kind != "paused" {
				continue
			}
			frozen++
			for _, m := range p.Marks {
				if m.Process == b.Process && m.Kind != "late" && b.From < m.At && m.At < b.Until {
					t.Errorf("%s by %s: %s at %s: %s", p.Case, p.Generation, p.Processes[m.Process].Name,
						study.Time(m.At), m.Text)
				}
			}
		}
	})
	if frozen == 0 {
		t.Error("no process was frozen")
	}
}
