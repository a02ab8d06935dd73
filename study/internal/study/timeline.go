package study

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"mongodlm/catalog"
)

// Time formats an instant of a play as true time of day.
func Time(at time.Duration) string { return noon.Add(at).Format("15:04:05.0") }

// Rows returns the marks by time, without the marks that only accompany a ping. The verdict names
// the deciding step. If the verdict is empty, no step decides.
func (p Play) Rows(v Verdict) []Mark {
	var rows []Mark
	decides := p.deciding(v)
	for i, m := range p.Marks {
		m.Decides = i == decides
		m.Quiet = m.quiet() && !m.Decides
		if m.housekeeping() && !m.Decides {
			continue
		}
		if strings.Contains(m.Text, " lock") && m.Count > 0 { // a command on a collection
			m.Text = m.Kind + " (" + m.Text + ")"
		}
		if m.Answer != "" {
			m.Text += ": " + m.Answer
		}
		if m.Count > 1 {
			m.Text += fmt.Sprintf(" (%d times, until %s)", m.Count,
				noon.Add(m.Until).Format(time.TimeOnly))
		}
		rows = append(rows, m)
	}
	return rows
}

// deciding returns the index of the mark that decides the play, or -1. In this module the
// candidates are acquisitions, takeovers and losses. In the other generations the candidates are
// the marks that the verdict names. The last candidate of the first non-empty group decides:
//
//   - candidates before two processes hold the lock
//   - candidates that an accident struck
//   - candidates that changed a document
//   - all candidates
func (p Play) deciding(v Verdict) int {
	found, most := -1, -1
	who := slices.IndexFunc(p.Processes, func(q Process) bool { return q.Name == v.Who })
	for i, m := range p.Marks {
		of := m.Source == v.Source
		if p.Generation == Ours {
			of = slices.Contains([]string{"learns", "holds", string(Take)}, m.Kind)
		}
		weight := 0
		switch {
		case v.Source == "" || !of || who >= 0 && m.Process != who:
			continue
		case p.Outcome.Two > 0 && m.At <= p.Outcome.TwoFrom:
			weight = 3
		case m.Struck:
			weight = 2
		case m.Changed || strings.Contains(m.Text, "forces"):
			weight = 1
		}
		if weight >= most {
			found, most = i, weight
		}
	}
	return found
}

// housekeeping reports whether a mark is a successful command that only accompanies a ping.
func (m Mark) housekeeping() bool {
	quiet := m.Answer == "0 removed" || m.Answer == "none" || m.Answer == "done" ||
		strings.HasPrefix(m.Answer, "state ")
	return quiet && m.Kind == string(Clean) || m.Kind == string(Clock) && !m.Struck &&
		m.Answer != errUnreachable.Error()
}

func (m Mark) quiet() bool {
	bad := strings.Contains(m.Answer, "[") || strings.Contains(m.Answer, "answered: ") ||
		slices.Contains([]string{errUnreachable.Error(), errNoReply.Error(),
			catalog.ErrCondemned.Error(), catalog.ErrNoMatch.Error()}, m.Answer)
	return !bad && slices.Contains([]string{string(Ping), string(Read), string(Reread), string(Clean),
		string(Ask), string(Sight), "remembers", "asks:"}, m.Kind)
}

// changes lists the fields that differ between two versions of a document. It omits fields such as
// who and why, which only describe the holder.
func changes(before, now []Field) string {
	if len(now) == 0 {
		return "document is removed"
	}
	var parts []string
	for _, f := range now {
		switch {
		case slices.Contains(before, f) || strings.Contains(
			" _id who why when rev grants takeoverMS evidence ", " "+f.Name+" "):
		case f.Name == "process":
			parts = append(parts, "process "+owner(f.Value))
		case f.Name == "condemned":
			parts = append(parts, "condemned")
		case f.Name == "waiters":
			parts = append(parts, fmt.Sprintf("waiters %d", strings.Count(f.Value, "{ts: ")))
		default:
			parts = append(parts, f.Name+" "+f.Value)
		}
	}
	if len(parts) == 0 {
		return "no change of the displayed fields"
	}
	return strings.Join(parts, ", ")
}

// Cell returns the outcome in a few words. If a single release plays in place of generation 3.2,
// Cell adds the name of the release.
func (p Play) Cell() string {
	words := map[string]string{"-": "one holder", "no": "not possible", "two": p.Outcome.Parts()[0],
		"stale": "a stale write", "stuck": "stuck", "starved": "a waiter starves", "late": "late"}
	first, other, both := strings.Cut(p.Outcome.Shape(), "/")
	cell := words[first]
	if both {
		cell += " or " + words[other]
	}
	if release, of := strings.CutPrefix(p.Title, "release "); of && first != "no" &&
		p.Generation == "3.2" {
		cell = release + ": " + cell
	}
	return cell
}
