package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/study/internal/study"
)

func TestMain(m *testing.M) { effort.Main(m) }

// called runs the program and compares the exit code; what it says must contain all of texts.
func called(t *testing.T, code int, args []string, texts ...string) (out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	if got := run(t.Context(), args, &o, &e); got != code {
		t.Errorf("%q: exit code %d, want %d: %s", args, got, code, &e)
	}
	for _, text := range texts {
		if !strings.Contains(o.String()+e.String(), text) {
			t.Errorf("%q does not say %q: %s%s", args, text, &o, &e)
		}
	}
	return o.String(), e.String()
}

// It tries to break: a program that reads one play gets its figures, all events and all documents;
// flags may stand behind the case.
func TestRun_OnePlay_AsJSON(t *testing.T) {
	t.Parallel()
	out, _ := called(t, 0, []string{"--generation", "1.8", "two-force", "--json"})
	var one study.Report
	if err := json.Unmarshal([]byte(out), &one); err != nil || len(one.Plays) != 1 ||
		one.Plays[0].Two == 0 || len(one.Plays[0].Marks) == 0 || len(one.Plays[0].Versions) == 0 {
		t.Errorf("%v: %.300s", err, out)
	}
}

// It tries to break: what cannot be played is refused as a wrong call, and the nearest names are
// told.
func TestRun_WrongCalls_AreRefused(t *testing.T) {
	t.Parallel()
	called(t, 2, []string{"clock-ahaed"}, "clock-ahead", "most like it")
	called(t, 2, []string{"pause", "more"}, "unexpected argument")
	for _, name := range []string{"7.0", "2", "2.4.14b", "2.4.14.3", "2.4.", "-1.8"} {
		called(t, 2, []string{"pause", "--generation", name}, "1.6, 1.8, 2.0, 2.6, 3.2, ours",
			"such as 2.4.14")
	}
	called(t, 2, []string{"pause", "--seed", "4"}, "--seed, --plays and --for are for search")
	called(t, 2, []string{"sweep", "--plays", "4"}, "are for search")
	called(t, 2, []string{"search", "--plays", "0"}, "--plays is at least 1")
	called(t, 2, []string{"search", "--for", "-1s"}, "--for at least")
	called(t, 2, []string{"pause", "--from", "12:30", "--until", "12:10"}, "--until is before --from")
	called(t, 2, []string{"pause", "--html", "x.html"}, "all cases")
	called(t, 1, []string{"--html", filepath.Join(t.TempDir(), "no", "folder.html")}, "not written",
		"no such file")
	called(t, 0, []string{"-h"}, "-generation NAME", "[CASE]")
	if _, said := called(t, 2, []string{"\x1b[31m"}); strings.Contains(said, "\x1b") {
		t.Errorf("a terminal could obey %q", said)
	}
}

// It tries to break: a hole and a part of a name find their cases; one is shown in lanes, several
// as a table.
func TestRun_FindsCases(t *testing.T) {
	t.Parallel()
	called(t, 0, []string{"clock", "--generation", "1.6"}, "clock-ahead", "server-clock-steps",
		"config-clocks-apart")
	called(t, 0, []string{"h1", "--generation", "1.8"}, "two-force (H1)", "has the lock")
	called(t, 0, []string{"H12", "--generation", "1.8"}, "before-first-ping", "restored-backup")
	if out, _ := called(t, 0, []string{"H1", "--generation", "1.8"}); strings.Contains(out, "H10") {
		t.Errorf("H1 finds H10: %s", out)
	}
}

// It tries to break: knobs are set in front of the case and behind it, the generation like one, and
// the timeline says so. What cannot be set is refused with what can.
func TestRun_SetsKnobs(t *testing.T) {
	t.Parallel()
	called(t, 0, []string{"--set", "pause=14m", "pause", "--set", "generation=1.8"},
		"Set otherwise: A.pause=14m", "1.8 (mongos", "one holder")
	called(t, 0, []string{"pause", "--generation", "1.8", "--set", "A.pause=1m", "--set",
		"A.late=finalize:1m"}, "did not happen: finalize slow of A")
	called(t, 0, []string{"pause", "--generation", "1.8", "--set", "election=5m"},
		"did not happen: election")
	called(t, 2, []string{"pause", "--set", "B.paws=1m"}, "--set", `no knob "B.paws"`,
		"A.clock, A.step", "takeover")
	called(t, 2, []string{"pause", "--set", "pause=soon"}, "A.pause", "no length of time", "14m@2m10s")
	called(t, 2, []string{"--set", "pause=1m"}, "of one case")
	called(t, 2, []string{"pause", "--set", "generation=7"}, "2.6, 3.2, ours")
}

// It tries to break: --http without a host serves this machine only, until Ctrl-C; nothing stands
// beside it, and an address that is none is refused.
func TestRun_ServesTheKnobs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	reads, writes := io.Pipe()
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"--http", ":0"}, writes, writes) }() // ends with ctx
	line, err := bufio.NewReader(reads).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "http://127.0.0.1:") {
		t.Fatalf("%q, %v", line, err)
	}
	r, err := http.Get(strings.Fields(line)[0] + "?generation=1.8&takeover=no")
	if err != nil || r.StatusCode != http.StatusBadRequest {
		t.Fatalf("%v, %v", r, err)
	}
	_ = r.Body.Close()
	cancel()
	assert.Equal(t, <-code, 0, "exit code %d, want %d")
	called(t, 2, []string{"--http", ":0", "pause"}, "nothing beside it")
	called(t, 1, []string{"--http", "8080"}, "--http", "missing port")
}

// It tries to break the seventh lesson: a case of one's own comes out as the course says.
func TestRun_TheCaseOfTheCourse(t *testing.T) {
	t.Parallel()
	course := assert.Value(os.ReadFile(filepath.Join("..", "docs", "study.md")))(t)
	_, block, _ := strings.Cut(string(course), "$ go run ./study pause --set ")
	block, _, _ = strings.Cut(block, "```")
	lines := strings.Split(strings.TrimSpace(block), "\n")
	for _, line := range lines[1:] {
		generation, outcome, _ := strings.Cut(line, ": ")
		called(t, 0, append(strings.Fields("pause --generation "+generation+" --set"),
			strings.Fields(lines[0])...), "== "+generation+" (", "): "+outcome)
	}
	if len(lines) != 3 {
		t.Errorf("%q", lines)
	}
}

// It tries to break: a sweep is drawn with its constants, a search says how much it tried and
// prints a call that can be kept; wrong calls of both are refused with what there is.
func TestRun_SweepsAndSearches(t *testing.T) {
	t.Parallel()
	called(t, 0, []string{"sweep", "skew", "--generation", "2.0"}, "mirror.clock", "----------##",
		"from 31s on: LOCK_TIMEOUT")
	called(t, 0, []string{"search", "--generation", "1.6"}, "1.6, seed 1: ", "simulated: ",
		"reduced: go run ./study quiet --generation 1.6 --set ")
	called(t, 0, []string{"search", "--generation", "ours", "--plays", "2"}, "2 plays, ",
		"simulated: none breaks it")
	called(t, 0, []string{"search", "--generation", "2.6", "--for", "1ns"}, "0 plays",
		"none breaks it")
	called(t, 2, []string{"sweep", "paws"}, `no sweep "paws"`, "pause, clock, clock-behind")
	called(t, 2, []string{"search", "more"}, "unexpected argument")
	called(t, 2, []string{"sweep", "pause", "--json"}, "--generation only")
	called(t, 0, []string{"quiet", "--generation", "1.8"}, "Nothing goes wrong")
	called(t, 0, []string{"others", "--generation", "etcd"}, "cut-off", "one holder")
}

// It tries to break: by default what decides is shown, and no poll that found nothing new; --all
// shows that, too; --from and --until leave out what is not asked for.
func TestRun_ShowsWhatDecides(t *testing.T) {
	t.Parallel()
	args := []string{"two-force", "--generation", "2.6"}
	short, _ := called(t, 0, args, "take over", "forces", "state 2", "has the lock", "dies")
	all, _ := called(t, 0, append(args, "--all"), "read (find locks)", "ping (update")
	some, _ := called(t, 0, append(args, "--from", "12:19", "--until", "12:21:30"), "take over")
	if strings.Contains(short, "ping (update") || strings.Contains(short, "read (find") ||
		len(short)*2 > len(all) {
		t.Errorf("%d bytes, and with --all %d:\n%s", len(short), len(all), short)
	}
	if strings.Contains(some, "dies") || strings.Contains(some, "\n12:35") {
		t.Errorf("not only from 12:19 to 12:21:30:\n%s", some)
	}
	called(t, 2, append(args, "--from", "noon"), "12:05", "-from")
	called(t, 2, []string{"--from", "12:05"}, "of one case")
	called(t, 0, []string{"sources", "two-force", "--generation", "1.8"},
		"C take over: r1.8.5 client/distlock.cpp:235")
}

// It tries to break: Ctrl-C ends the playing of all cases, which takes long, and leaves the page as
// it was.
func TestRun_Interrupted_Ends(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	page := filepath.Join(t.TempDir(), "page.html")
	assert.Must(t, os.WriteFile(page, []byte("before"), 0o600))
	none := filepath.Join(t.TempDir(), "none.html")
	for _, args := range [][]string{nil, {"--json"}, {"--html", page}, {"--html", none}} {
		var out, errOut bytes.Buffer
		if code := run(ctx, args, &out, &errOut); code != 1 || out.Len() > 0 ||
			!strings.Contains(errOut.String(), "canceled") {
			t.Errorf("%q: exit code %d: %s%s", args, code, &out, &errOut)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("an empty page is left behind")
	}
	if text, err := os.ReadFile(page); string(text) != "before" {
		t.Errorf("the page is %q, %v", text, err)
	}
}

// It tries to break: table and timeline fit the terminal, however narrow, and leave nothing out:
// not the words of what happened, nor the signs of who held the lock. A file gets them unbroken.
func TestPrint_FitsTheTerminal_LeavesNothingOut(t *testing.T) {
	t.Parallel()
	c, _, _ := study.FindCase("cut-off")
	cases, generations := []study.Case{c}, study.Generations()
	plays := assert.Value(study.Run(t.Context(), cases, generations))(t)
	for _, width := range []int{0, 200, 150, 100, 80, 40, 28} {
		var tableOut, timeline strings.Builder
		table(&tableOut, cases, generations, plays, width)
		timelines(&timeline, c, plays, width, view{})
		for line := range strings.Lines(tableOut.String() + timeline.String()) {
			if line = strings.TrimSuffix(line, "\n"); width > 0 && len(line) > width {
				t.Errorf("%d columns: %q", width, line)
			}
		}
		for _, text := range []string{"cut-off", "1.6", "1.8", "2.0", "2.6", "3.2", "OURS", "TWO for",
			"holder"} {
			if !strings.Contains(tableOut.String(), text) {
				t.Errorf("%d columns: no %q:\n%s", width, text, &tableOut)
			}
		}
		for _, text := range []string{"== ours", "STALE", "! ", "cut off", "condemned"} {
			if !strings.Contains(timeline.String(), text) {
				t.Errorf("%d columns: no %q:\n%s", width, text, &timeline)
			}
		}
	}
}
