package study_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/study/internal/study"
)

const root = "../../.."

func TestMain(m *testing.M) { effort.Main(m) }

// played are the plays of some cases, all of them unless the race detector is at work.
var played = sync.OnceValues(func() ([]study.Case, []study.Play) {
	cases := some(1)
	plays, _ := study.Run(context.Background(), cases, study.Generations())
	return cases, plays
})

// some returns every n-th case, fewer with the race detector.
func some(n int) (cases []study.Case) {
	if effort.Race {
		n *= 6
	}
	for i, c := range study.Cases() {
		if i%n == 0 {
			cases = append(cases, c)
		}
	}
	return cases
}

// outcomes calls visit for every play, with its generation.
func outcomes(visit func(c study.Case, p study.Play)) {
	cases, plays := played()
	for i, p := range plays {
		visit(cases[i/len(study.Generations())], p)
	}
}

// It tries to break the promise of this module: in no case two processes take themselves for the
// holder at a time, not even when one of them stands still, and no write of an older holder goes in
// after one of a newer. And the lock is never lost to everybody.
func TestOurs_OneHolder_NoStaleWrite(t *testing.T) {
	t.Parallel()
	outcomes(func(_ study.Case, p study.Play) {
		if o := p.Outcome; p.Generation == study.Ours &&
			(o.TwoTrusted > 0 || o.Stale > 0 || o.GaveUp || o.Overtaken > 1) {
			t.Errorf("%s: %+v", p.Case, o)
		}
	})
}

// It tries to break a case whose accident never happens: its verdict would be one about nothing.
func TestCases_EveryAccidentHappens(t *testing.T) {
	t.Parallel()
	outcomes(func(_ study.Case, p study.Play) {
		if len(p.Missed) > 0 {
			t.Errorf("%s by %s: no %s", p.Case, p.Generation, strings.Join(p.Missed, ", no "))
		}
	})
}

// shapes is how the generations fail in each case, as the notes on their sources say that they
// must: "two" holders, "stuck" until the contender gave up, "late" when it took longer than a
// takeover, a "stale" write, "starved"; "-" is none of it, and "no" is what cannot be played.
// Figures are not written down.
var shapes = map[string]string{
	"clock-ahead":            "two two - - - -",
	"clock-behind":           "two stuck - - - -",
	"clock-steps-back":       "two two - - - -",
	"clock-stands":           "two two two two two -",
	"server-clock-steps":     "- - two two two -",
	"server-clock-mirrored":  "- - - - no no",
	"server-clock-corrected": "- - two two two -",
	"config-clocks-apart":    "- - stuck stuck no no",
	"lock-of-a-command":      "- - - - - -",
	"clock-check-hangs":      "no no late late no no",
	"two-of-one-process":     "- - late late no no",
	"loser-frees-winner":     "no no two two no no",
	"shard-steps-up":         "no no no no two no",
	"release-read-fails":     "two two no no no no",
	"grab-read-fails":        "stuck stuck - - no no",
	"split-win":              "two two - - no no",
	"loser-leaves-debris":    "stuck stuck - - no no",
	"server-lacks-lock":      "stuck stuck stuck stuck no no",
	"election-clock":         "no no no no - -",
	"before-first-ping":      "stuck stuck - - - -",
	"ping-pruned":            "stuck stuck - - - -",
	"ping-thread-ends":       "two two two two - -",
	"hung-thread":            "stuck stuck stuck stuck stuck -",
	"twin-ids":               "stuck stuck - - - -",
	"two-force":              "two two - - - -",
	"resumes-in-time":        "two two two two two -",
	"outage-20m":             "two two - - - -",
	"outage-15m":             "two - two two - -",
	"finalize-late":          "two two two two two -",
	"mixed-versions":         "no no two two no -",
	"passers-by":             "- - stuck stuck stuck -",
	"elections":              "no no no no late -",
	"step-up":                "no no no no two no",
	"shared-session":         "no no no no two no",
	"release-by-id":          "two two stale - - -",
	"release-repeated":       "two two - - - -",
	"release-twice":          "two two - - - -",
	"release-fails":          "stuck stuck stuck - - -",
	"release-elsewhere":      "stuck stuck stuck stuck - -",
	"shutdown-forgets":       "- - - - - -",
	"operator-frees":         "two two two - two -",
	"restored-backup":        "stuck stuck - - - -",
	"grab-reply-lost":        "stuck stuck - - - -",
	"finalize-reply-lost":    "no no - - no no",
	"late-grab":              "stuck stuck - - stuck -",
	"dead-holder":            "- - - - - -",
	"cut-off":                "two two two two two -",
	"pause":                  "two two two two two -",
	"write-on-its-way":       "stale stale stale stale stale -",
	"starved":                "starved starved starved starved starved -",
}

func shape(o study.Outcome) string {
	const question, takeover = time.Second, 17 * time.Minute // who wakes has to ask before it knows
	switch {
	case o.Not != "":
		return "no"
	case o.Two > question:
		return "two"
	case o.GaveUp:
		return "stuck"
	case o.Stale > 0:
		return "stale"
	case o.Overtaken > 5:
		return "starved"
	case o.Idle > takeover:
		return "late"
	}
	return "-"
}

// It tries to break the table itself: were an old generation played with a step left out or mended,
// or the judge blind, its holes would close.
func TestGenerations_FailAsTheirSourcesSay(t *testing.T) {
	t.Parallel()
	if got := len(study.Cases()); got != len(shapes) || got < 20 {
		t.Errorf("%d cases, %d of them expected", got, len(shapes))
	}
	got := map[string][]string{}
	outcomes(func(_ study.Case, p study.Play) { got[p.Case] = append(got[p.Case], shape(p.Outcome)) })
	for name, shapesOf := range got {
		if s := strings.Join(shapesOf, " "); s != shapes[name] {
			t.Errorf("%s: %s, want %s", name, s, shapes[name])
		}
	}
}

// It tries to break who is accused: who was named by the document later is the newer holder,
// whenever it was told. In finalize-late A is told late of what it got first, so A's writes are
// stale; only in 2.0 A's second step comes after B's, and B's are.
func TestJudge_NewerIsWhoIsNamedLater(t *testing.T) {
	t.Parallel()
	c, _, _ := study.FindCase("finalize-late")
	plays, _ := study.Run(t.Context(), []study.Case{c}, study.Generations())
	for _, p := range plays {
		stale := make([]int, len(p.Processes))
		for _, w := range p.Writes {
			if w.Verdict == "stale" {
				stale[w.Process]++
			}
		}
		switch late, early := stale[0], stale[1]; p.Generation {
		case study.Ours:
			if late+early > 0 {
				t.Errorf("ours: %v", stale)
			}
		case "2.0", "2.6":
			if late > 0 || early == 0 {
				t.Errorf("%s: stale writes of A and B %v, want those of B only", p.Generation, stale)
			}
		default:
			if late < 20 || late > 21 || early > 0 {
				t.Errorf("%s: stale writes of A and B %v, want 20 or 21 of A only", p.Generation, stale)
			}
		}
	}
}

// Two figures of the notes: 1.8 cuts minutes off, so that its 15 are 16; and a holder of ours that
// is cut off stops 3 min 45 s before the next one begins.
func TestFigures_OfTheNotes(t *testing.T) {
	t.Parallel()
	c, _, _ := study.FindCase("cut-off")
	plays, _ := study.Run(t.Context(), []study.Case{c}, study.Generations())
	if took := plays[1].Outcome.Losses[0].At; took < 16*time.Minute+2*time.Minute ||
		took > 18*time.Minute+time.Minute {
		t.Errorf("1.8 took the lock at %v, and the last ping was at 2 min", took)
	}
	l := plays[len(plays)-1].Outcome.Losses[0]
	if before := l.Next - l.Learnt; before < 3*time.Minute+45*time.Second || before > 4*time.Minute {
		t.Errorf("the holder of ours stopped %v before the next one", before)
	}
}

// It tries to break that a play is the same every time, whatever Go's scheduler does: every figure,
// every event and every document. Every fourth case is played again; that the page in docs comes
// out as it did in another program says the same of all.
func TestRun_Again_IsTheSame(t *testing.T) {
	t.Parallel()
	cases := some(4)
	again, _ := study.Run(t.Context(), cases, study.Generations())
	outcomes(func(_ study.Case, p study.Play) {
		i := slices.IndexFunc(again,
			func(a study.Play) bool { return a.Case == p.Case && a.Generation == p.Generation })
		if i >= 0 && !reflect.DeepEqual(again[i], p) {
			t.Errorf("%s by %s came out in two ways: %v, %v", p.Case, p.Generation, p.Outcome,
				again[i].Outcome)
		}
	})
}

// Every case names a hole that docs/semantics.md tells of, and a function that is there.
func TestCases_NameHoleAndFunction(t *testing.T) {
	t.Parallel()
	semantics := assert.Value(os.ReadFile(filepath.Join(root, "docs", "semantics.md")))(t)
	hole := regexp.MustCompile(`^(H\d+|G\d-\d+)$`)
	seen := map[string]bool{}
	for _, c := range study.Cases() {
		if seen[c.Name] || c.Title == "" || c.Story == "" || c.Wrong == "" || c.Rule == "" {
			t.Errorf("%q: a name of its own, and all of the story", c.Name)
		}
		seen[c.Name] = true
		row := regexp.MustCompile(`(?m)^\| ` + c.Hole + ` .*$`).FindString(string(semantics))
		if hole.MatchString(c.Hole) && (!strings.Contains(row, "`"+c.Name+"`") ||
			!strings.Contains(row, `<a id="`+strings.ToLower(c.Hole)+`">`)) {
			t.Errorf("%s: docs/semantics.md has no %s that names it: %s", c.Name, c.Hole, row)
		}
		file, name, _ := strings.Cut(c.Where, " ")
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil || !regexp.MustCompile(`\nfunc (\(\w+ \*?\w+\) )?`+name+`\(`).Match(text) {
			t.Errorf("%s: no function %q, %v", c.Name, c.Where, err)
		}
	}
}

// It tries to break a hole of docs/semantics.md that nobody sees: each is played by a case, or
// named there among those that no play shows.
func TestHoles_ArePlayedOrSaidNotToBe(t *testing.T) {
	t.Parallel()
	semantics := assert.Value(os.ReadFile(filepath.Join(root, "docs", "semantics.md")))(t)
	_, holes, _ := strings.Cut(string(semantics), "\n## The known holes\n")
	unplayed := regexp.MustCompile(`(?s)\w+ are not played\..*?\n\n`).FindString(holes)
	rows := regexp.MustCompile(`(?m)^\| ([HG][\d-]+) .*$`).FindAllStringSubmatch(holes, -1)
	for _, row := range rows {
		playing := slices.ContainsFunc(study.Cases(),
			func(c study.Case) bool { return strings.Contains(row[0], "`"+c.Name+"`") })
		if named := regexp.MustCompile(`\b` + row[1] + `\b`).MatchString(unplayed); playing == named {
			t.Errorf("played %t, said not to be %t: %s", playing, named, row[0])
		}
	}
	if len(rows) < 40 {
		t.Errorf("%d rows", len(rows))
	}
}

// Every function of an old generation names the lines of the source that it follows.
func TestGenerations_NameTheirSources(t *testing.T) {
	t.Parallel()
	function := regexp.MustCompile(`(?ms)((?:^//[^\n]*\n)*)^func [^\n]*\{\n(.*?)^\}`)
	line := regexp.MustCompile(
		`(//|\(|, |of |r\d\.\d+\.\d+|catalog|\.cpp):(\d+|%d)|(at|catalog)\(\d+|file\d\d \+ strconv`)
	for _, file := range []string{"gen18.go", "gen20.go", "gen32.go"} {
		text := assert.Value(os.ReadFile(file))(t)
		found := function.FindAllStringSubmatch(string(text), -1)
		if len(found) < 8 {
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

// It tries to break the table from each cell to the source: a cell without a line, one that names
// none, and the lines of some that were looked up by hand.
func TestReasons_EveryCellHasItsSource(t *testing.T) {
	t.Parallel()
	line := map[string]*regexp.Regexp{study.Ours: regexp.MustCompile(`^\w+/[\w/]+\.go \w+$`)}
	for generation, release := range map[string]string{"1.6": `r1\.6\.5`, "1.8": `r1\.8\.5`,
		"2.0": `r2\.0\.9`, "2.6": `r2\.6\.12`, "3.2": `(r3\.2\.22|r3\.4\.18|14e04b0a)`} {
		line[generation] = regexp.MustCompile(`^` + release +
			` (src/mongo/)?(client|s|db)/[\w/]+\.cpp:[1-9]\d*$`)
	}
	want := map[string]string{
		"clock-ahead 1.6":   "r1.6.5 client/distlock.cpp:148",
		"clock-behind 1.8":  "r1.8.5 client/distlock.cpp:212",
		"release-by-id 1.8": "r1.8.5 client/distlock.cpp:319",
		"two-force 2.0":     "r2.0.9 client/distlock.cpp:607",
		"finalize-late 2.6": "r2.6.12 src/mongo/s/distlock.cpp:1004", "step-up 3.2": "state_impl.cpp:839",
		"shared-session 3.2": session, "operator-frees 3.2": "replset_dist_lock_manager.cpp:436",
		"config-clocks-apart 2.0": "r2.0.9 client/distlock.cpp:236",
		"before-first-ping 1.8":   "client/distlock.cpp:206",
		"late-grab 3.2":           "dist_lock_catalog_impl.cpp:196",
		"release-fails 1.8":       "client/distlock.cpp:227",
		"election-clock 2.6":      "client/syncclusterconnection.cpp:420",
		"pause ours":              "distlock/guard.go Err",
		"server-lacks-lock 1.8":   "r1.8.5 client/distlock.cpp:297",
		"server-lacks-lock 2.6":   "r2.6.12 src/mongo/s/distlock.cpp:912",
		"shard-steps-up 3.2":      "14e04b0a src/mongo/db/s/dist_lock_manager_replset.cpp:220",
		"clock-check-hangs 2.0":   "r2.0.9 client/distlock.cpp:365",
		"two-of-one-process 2.0":  "r2.0.9 client/distlock.cpp:696",
		"release-elsewhere 2.0":   "r2.0.9 client/distlock.cpp:168",
		"loser-frees-winner 2.6":  "r2.6.12 src/mongo/s/distlock.cpp:204",
	}
	outcomes(func(c study.Case, p study.Play) {
		all, reasons := "", p.Reasons(c)
		for _, r := range reasons {
			if !line[p.Generation].MatchString(r.Source) {
				t.Errorf("%s by %s: %q is no line of it", p.Case, p.Generation, r.Source)
			}
			all += r.String() + "\n"
		}
		if len(reasons) == 0 || !strings.Contains(all, want[p.Case+" "+p.Generation]) {
			t.Errorf("%s by %s: %q, want %q", p.Case, p.Generation, all, want[p.Case+" "+p.Generation])
		}
	})
}

const session = "14e04b0a src/mongo/db/s/dist_lock_manager_replset.cpp:98"

// docs/study.html is what the program prints.
func TestPage_InDocs_IsWhatIsPlayed(t *testing.T) {
	t.Parallel()
	if effort.Race {
		t.Skip("with the race detector only some cases are played")
	}
	cases, plays := played()
	others := assert.Value(study.Run(t.Context(), study.OthersCases(), study.Others()))(t)
	page := study.Page(cases, study.Generations(), plays, others)
	docs := assert.Value(os.ReadFile(filepath.Join(root, "docs", "study.html")))(t)
	if page != string(docs) {
		at := 0
		for at < min(len(page), len(docs)) && page[at] == docs[at] {
			at++
		}
		t.Errorf("docs/study.html differs at byte %d from what is played now; make it again with "+
			"go run ./study --html docs/study.html\n%.200s", at, page[at:])
	}
	if outside := regexp.MustCompile(`(src|href)="(https?:)?//`).FindString(page); outside != "" ||
		len(page) > 1500_000 {
		t.Errorf("%d bytes, and %q", len(page), outside)
	}
}

// It tries to break the course: what docs/study.md says will come out is what comes out.
func TestCourse_SaysWhatComesOut(t *testing.T) {
	t.Parallel()
	course := assert.Value(os.ReadFile(filepath.Join(root, "docs", "study.md")))(t)
	said, of, lines := map[string]string{}, "", 0
	line := regexp.MustCompile(`(?m)^(?:\$ go run ./study (.*)|([\w.]+): (.*))$`)
	for _, m := range line.FindAllStringSubmatch(string(course), -1) {
		if m[1] != "" {
			of = m[1]
			continue
		}
		said[of+" "+m[2]] = m[3]
		lines++
	}
	outcomes(func(_ study.Case, p study.Play) {
		want := strings.Join(p.Outcome.Parts(), ", ")
		if got := said[p.Case+" "+p.Generation]; got != "" && got != want {
			t.Errorf("%s: the course says %q, the program %q", p.Case, got, want)
		}
	})
	if lines < 30 || len(said) != lines {
		t.Errorf("%d plays in the course, %d told apart", lines, len(said))
	}
}

// A name that is not quite right finds the right one.
func TestFindCase_Unknown_NamesTheNearest(t *testing.T) {
	t.Parallel()
	for wrong, want := range map[string]string{
		"clokahead": "clock-ahead", "release by id": "release-by-id", "starve": "starved", "": "pause",
	} {
		if _, nearest, ok := study.FindCase(wrong); ok || !slices.Contains(nearest, want) {
			t.Errorf("%q: %v", wrong, nearest)
		}
	}
	for _, wrong := range []string{"1.4", "6.1", "7.0", "mongos", ""} {
		if _, names, ok := study.FindGeneration(wrong); ok || len(names) != 9 {
			t.Errorf("%q: %v", wrong, names)
		}
	}
}

// Every release belongs to a generation, and is played as itself: a release of 2.4.14 fails as in
// 2.0, and its holder can ask as in 2.6.
func TestFindGeneration_OfARelease(t *testing.T) {
	t.Parallel()
	for name, title := range map[string]string{"1.5.5": "1.5.5", "r1.7.5": "1.5.5", "1.7.6": "1.7.6",
		"2.2": "1.9", "2.4.14": "1.9", "3.0": "2.6", "3.4": "3.2", "4.4": "3.2", "6.0.21": "3.2"} {
		g, _, ok := study.FindGeneration(name)
		if !ok || g.Name != name || !strings.Contains(g.Title, " "+title) {
			t.Errorf("%s: %v, %+v", name, ok, g)
		}
	}
	for name, want := range map[string]string{"2.4 release-fails": "stuck", "2.4 operator-frees": "-",
		"2.4 election-clock": "no", "2.0.0 lock-of-a-command": "stuck", "2.0.1 lock-of-a-command": "-",
		"1.7.6 clock-behind": "two", "1.7.5 dead-holder": "-", "3.0 loser-frees-winner": "-",
		"2.6 loser-frees-winner": "two"} {
		release, of, _ := strings.Cut(name, " ")
		if got := shape(set(t, of, release).Outcome); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
