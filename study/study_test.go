package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

const root = ".."

// played plays the cases once. With the race detector it plays only some cases.
var played = sync.OnceValues(func() (cases []Case, plays [][]Play) {
	for i, c := range Cases() {
		if !effort.Race || i%6 == 0 {
			cases = append(cases, c)
		}
	}
	plays, _ = Run(context.Background(), cases, Generations())
	return cases, plays
})

func playOf(t *testing.T, name, generation string) Play {
	t.Helper()
	c := assert.Value(FindCases(name))(t)[0]
	g := assert.Value(FindGeneration(generation))(t)
	plays := assert.Value(Run(t.Context(), []Case{c}, []Generation{g}))(t)
	return plays[0][0]
}

func outcomes(visit func(c Case, g Generation, p Play)) {
	cases, plays := played()
	for i, c := range cases {
		for j, g := range Generations() {
			visit(c, g, plays[i][j])
		}
	}
}

// In every case at most one process believes that it holds this module's lock, even if a holder is
// frozen. No write of an older holder is accepted after a write of a newer holder. The waiters get
// the lock and are overtaken at most once. There is one exception: after an upgrade that drops the
// documents, two processes hold the lock until the next ping.
func TestOurs_OneHolder_NoStaleWrite(t *testing.T) {
	t.Parallel()
	outcomes(func(c Case, _ Generation, p Play) {
		if p.Generation != Ours {
			return
		}
		two := time.Duration(0)
		if c.Name == "upgrade-to-7" {
			two = 31 * time.Second
		}
		for o := &p.Outcome; o != nil; o = o.Other {
			if o.TwoTrusted > two || o.Stale > 0 || o.GaveUp || o.Overtaken > 1 {
				t.Errorf("%s: %+v", p.Case, o)
			}
		}
	})
}

// Every accident that a case defines happens.
func TestCases_EveryAccidentHappens(t *testing.T) {
	t.Parallel()
	outcomes(func(_ Case, _ Generation, p Play) {
		if len(p.Missed) > 0 {
			t.Errorf("%s by %s: no %s", p.Case, p.Generation, strings.Join(p.Missed, ", no "))
		}
	})
}

// The source of each verdict on this module is an existing function.
func TestOurs_Sources_Exist(t *testing.T) {
	t.Parallel()
	for _, c := range Cases() {
		for _, g := range Generations() {
			if g.Name != Ours {
				continue
			}
			v := c.Verdicts[Ours]
			file, name, _ := strings.Cut(v.Source, " ")
			text, err := os.ReadFile(filepath.Join(root, file))
			if err != nil || !regexp.MustCompile(`\nfunc (\(\w+ \*?\w+\) )?`+name+`\(`).Match(text) {
				t.Errorf("%s: no function %q, %v", c.Name, v.Source, err)
			}
		}
	}
}

// The outcome of each play is the outcome that cases.txt expects. Each verdict has a reason and a
// source. In an old generation the source is a line that a step of the play imitates.
func TestGenerations_FailAsTheirSourcesRead(t *testing.T) {
	t.Parallel()
	line := map[string]string{"1.8": `r1\.8\.5`, "2.0": `r2\.0\.9`, "2.6": `r2\.6\.12`,
		"3.2": `(r3\.2\.22|r4\.0\.18|14e04b0a)`}
	outcomes(func(c Case, g Generation, p Play) {
		v, ok := c.Verdicts[g.Name]
		if !ok || v.Why == "" || p.Outcome.Shape() != v.Shape {
			t.Errorf("%s by %s: %s (%s), want %+v", c.Name, g.Name, p.Outcome.Shape(), p.Outcome, v)
			return
		}
		if v.Shape != "no" && p.deciding(v) < 0 {
			t.Errorf("%s by %s: no step follows %s", c.Name, g.Name, v.Source)
		}
		if g.Name != Ours && !regexp.MustCompile(`^`+line[g.Name]+
			` (src/mongo/)?(client|s|db)/[\w/]+\.cpp:[1-9]\d*$`).MatchString(v.Source) {
			t.Errorf("%s by %s: %q is not a line of its source", c.Name, g.Name, v.Source)
		}
	})
}

// Of two holders, the newer is the holder that the lock document named later. The order of the
// replies does not matter. In the case finalize-late, A is frozen before it receives a reply. In
// 1.8 and 3.2, A then trusts the old reply, so the writes of A are stale. In 2.0 and 2.6, A
// overwrites the document that names B, so the writes of B are stale. With the lock of this module,
// no write is stale.
func TestJudge_NewerIsNamedLater(t *testing.T) {
	t.Parallel()
	for _, g := range Generations() {
		p := playOf(t, "finalize-late", g.Name)
		stale := make([]int, len(p.Processes))
		for _, m := range p.Marks {
			if m.Kind == "write stale" {
				stale[m.Process] += m.Count
			}
		}
		switch a, b := stale[0], stale[1]; p.Generation {
		case Ours:
			if a+b > 0 {
				t.Errorf("ours: %v", stale)
			}
		case "2.0", "2.6":
			if a > 0 || b == 0 {
				t.Errorf("%s: stale writes of A and B %v, want those of B only", p.Generation, stale)
			}
		default:
			if a < 20 || a > 21 || b > 0 {
				t.Errorf("%s: stale writes of A and B %v, want 20 or 21 of A only", p.Generation, stale)
			}
		}
	}
}

// The method first returns the time of the first mark of a kind, or 0.
func (p Play) first(process, kind string) time.Duration {
	for _, m := range p.Marks {
		if m.Process >= 0 && p.Processes[m.Process] == process && m.Kind == kind {
			return m.At
		}
	}
	return 0
}

// mongos 1.8 truncates the age of a ping to minutes, so it takes over after 16 minutes and not
// after 15. In this module, a holder that is cut off stops 3 min 45 s before the next holder
// begins, and a frozen holder learns of its loss when it runs again. In 1.8 and 2.0 it never does.
func TestFigures_OfTheNotes(t *testing.T) {
	t.Parallel()
	at := playOf(t, "cut-off", "1.8").first("B", "take over")
	if at < 18*time.Minute || at > 19*time.Minute {
		t.Errorf("1.8 took the lock at %v, and the last ping was at 2 min", at)
	}
	p := playOf(t, "cut-off", "ours")
	stops := p.first("A", "learns")
	before := p.first("B", "holds") - stops
	if stops == 0 || before < 3*time.Minute+45*time.Second || before > 4*time.Minute {
		t.Errorf("the holder of ours stopped at %v, %v before the next one", stops, before)
	}
	const wakes = 22*time.Minute + 10*time.Second
	at = playOf(t, "pause", "ours").first("A", "learns")
	if at < wakes || at > wakes+time.Second {
		t.Errorf("the frozen holder of ours learned of its loss at %v", at)
	}
	for _, generation := range []string{"1.8", "2.0"} { // 2.4.2 added the check
		if at := playOf(t, "pause", generation).first("A", "learns"); at != 0 {
			t.Errorf("%s: A learned of its loss at %v", generation, at)
		}
	}
}

// Each hole in the table of docs/semantics.md is listed as not played, or its row names a case that
// plays it. Each hole that a case names has a row.
func TestHoles_PlayedOrNamed(t *testing.T) {
	t.Parallel()
	semantics := assert.Value(os.ReadFile(filepath.Join(root, "docs", "semantics.md")))(t)
	_, holes, _ := strings.Cut(string(semantics), "\n## The known holes\n")
	unplayed := regexp.MustCompile(`(?s)\w+ are not played\..*?\n\n`).FindString(holes)
	rows := map[string]string{}
	table := regexp.MustCompile(`(?m)^\| ([HG][\d-]+) .*$`)
	for _, row := range table.FindAllStringSubmatch(holes, -1) {
		rows[row[1]] = row[0]
		playing := slices.ContainsFunc(Cases(),
			func(c Case) bool { return strings.Contains(row[0], "`"+c.Name+"`") })
		if named := regexp.MustCompile(`\b` + row[1] + `\b`).MatchString(unplayed); playing == named {
			t.Errorf("played %t, named as not played %t: %s", playing, named, row[0])
		}
	}
	hole := regexp.MustCompile(`^(H\d+|G\d-\d+)$`)
	for _, c := range Cases() {
		for name := range strings.FieldsSeq(c.Hole) {
			if hole.MatchString(name) && !strings.Contains(rows[name], "`"+c.Name+"`") &&
				!strings.Contains(holes, name+" ") {
				t.Errorf("%s: no row of docs/semantics.md names it for %s: %s", c.Name, name, rows[name])
			}
		}
	}
	if len(rows) < 40 {
		t.Errorf("%d rows", len(rows))
	}
}

// Every function of an old generation names the source lines that it imitates.
func TestGenerations_NameTheirSources(t *testing.T) {
	t.Parallel()
	function := regexp.MustCompile(`(?ms)((?:^//[^\n]*\n)*)^func [^\n]*\{\n(.*?)^\}`)
	line := regexp.MustCompile(
		`(//|\(|, |of |r\d\.\d+\.\d+|catalog|\.cpp):(\d+|%d)|(at|catalog)\(\d+|Of\["\d\.\d"\]`)
	for _, file := range []string{"gen18.go", "gen20.go", "gen32.go"} {
		text := assert.Value(os.ReadFile(file))(t)
		found := function.FindAllStringSubmatch(string(text), -1)
		if len(found) < 6 {
			t.Errorf("%s: %d functions", file, len(found))
		}
		for _, m := range found {
			if strings.Count(m[2], "\n") > 3 &&
				!line.MatchString(strings.ReplaceAll(m[1]+m[2], "// :", "//:")) {
				t.Errorf("%s: this names no line of the source:\n%s", file, m[0])
			}
		}
	}
}

// The file docs/study.html shows the plays of this run. It is small and loads no other file.
func TestPage_InDocs_IsOfThesePlays(t *testing.T) {
	t.Parallel()
	if effort.Race {
		t.Skip("with the race detector only some cases are played")
	}
	cases, plays := played()
	page := Page(cases, Generations(), plays)
	docs := assert.Value(os.ReadFile(filepath.Join(root, "docs", "study.html")))(t)
	if page != string(docs) {
		at := 0
		for at < min(len(page), len(docs)) && page[at] == docs[at] {
			at++
		}
		t.Errorf("docs/study.html differs at byte %d from these plays; write it again with "+
			"go run ./study --html docs/study.html\n%.200s", at, page[at:])
	}
	if outside := regexp.MustCompile(`(src|href)="(https?:)?//`).FindString(page); outside != "" ||
		len(page) > 400_000 {
		t.Errorf("%d bytes, and %q", len(page), outside)
	}
}
