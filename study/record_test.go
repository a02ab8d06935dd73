package main

import (
	"strings"
	"testing"
)

// A slow command has one row for its send and one row for its reply. A row between them shows its
// effect. Other rows show a release that changed no document, and a failed release that is queued.
// In the case resumes-in-time, the holder pings between the decision and the command of the
// contender.
func TestRows_TellTheCourseOfEvents(t *testing.T) {
	t.Parallel()
	slow := []string{"B take over (update locks): sent", "A runs again", "A ping",
		"B take over (update locks): answered: n: 1"}
	for name, texts := range map[string][]string{
		"1.8 two-force": {"C take over (update locks): sent [slow]", "B has the lock",
			"server state 0", "C take over (update locks): answered: n: 1", "C has the lock"},
		"2.6 two-force": {"C take over (update locks): sent [slow]", "B has the lock",
			"C take over (update locks): answered: n: 0"},
		"3.2 finalize-late": {"A grab (findAndModify locks): sent", "server state 2", "B has the lock",
			"A grab (findAndModify locks): answered"},
		"1.8 dead-holder": {"A insert (insert locks)", "server state 0", "A grab"},
		"2.6 pause":       {"A release (update locks): n: 0", "A cannot release: nothing matched"},
		"3.2 pause":       {"A release (findAndModify locks): n: 0", "A has released"},
		"2.6 release-fails": {"A queues the release", "A release (update locks): n: 1",
			"server state 0"},
		"2.0 release-by-id":   {"A cannot release: nothing matched"},
		"1.8 release-by-id":   {"A has released"},
		"ours release-by-id":  {"A cannot release"},
		"3.2 grab-reply-lost": {"A release (findAndModify locks): n: 1", "server state 0"},
		"1.8 resumes-in-time": slow, "2.0 resumes-in-time": slow, "2.6 resumes-in-time": slow,
		"3.2 resumes-in-time": {"B take over (findAndModify locks): sent", "A runs again", "A ping",
			"B has the lock"},
		"ours resumes-in-time": {"B condemn: sent", "A runs again", "A ping",
			"B condemn: answered: condemn \"a:pid"},
	} {
		release, of, _ := strings.Cut(name, " ")
		p := playOf(t, of, release)
		var lines []string
		for _, m := range p.Marks {
			who := "server"
			if m.Process >= 0 {
				who = p.Processes[m.Process].Name
			}
			line := who + " " + m.text()
			if lines = append(lines, line); len(texts) > 0 && strings.Contains(line, texts[0]) {
				texts = texts[1:]
			}
		}
		if len(texts) > 0 {
			t.Errorf("%s: no %q in this order:\n%s", name, texts, strings.Join(lines, "\n"))
		}
	}
}

// A frozen process has no marks until it runs again.
func TestMarks_OfAFrozenProcess_None(t *testing.T) {
	t.Parallel()
	frozen := 0
	outcomes(func(_ Case, _ Generation, p Play) {
		for _, b := range p.Bars {
			if b.Kind != "paused" {
				continue
			}
			frozen++
			for _, m := range p.Marks {
				if m.Process == b.Process && m.Kind != "late" && b.From < m.At && m.At < b.Until {
					t.Errorf("%s by %s: %s at %s: %s", p.Case, p.Generation, p.Processes[m.Process].Name,
						Time(m.At), m.Text)
				}
			}
		}
	})
	if frozen == 0 {
		t.Error("no process was frozen")
	}
}
