package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

// called runs the program and compares the exit code; its output must contain all of texts.
func called(t *testing.T, code int, args []string, texts ...string) string {
	t.Helper()
	var out bytes.Buffer
	if got := run(t.Context(), args, &out, &out); got != code {
		t.Errorf("%q: exit code %d, want %d: %s", args, got, code, &out)
	}
	for _, text := range texts {
		if !strings.Contains(out.String(), text) {
			t.Errorf("%q does not print %q: %s", args, text, &out)
		}
	}
	return out.String()
}

// It tries to break a wrong call: it is refused with the list of what there is, and no text of the
// call reaches a terminal as it is.
func TestRun_WrongCalls_AreRefused(t *testing.T) {
	t.Parallel()
	called(t, 2, []string{"clock-ahaed"}, "there are dead-holder, clock-ahead")
	called(t, 2, []string{"pause", "more"}, "unexpected argument")
	for _, name := range []string{"7.0", "2", "3.9.9"} {
		called(t, 2, []string{"pause", "--generation", name}, "1.8, 2.0, 2.6, 3.2, ours", "2.4.0 to .14")
	}
	called(t, 2, []string{"sweep", "paws"}, `no sweep "paws"`, "pause, clock, clock-behind")
	called(t, 2, []string{"sweep", "pause", "--timeline"}, "--generation only")
	called(t, 2, []string{"pause", "--html", "x.html"}, "all cases")
	called(t, 2, []string{"--timeline"}, "one case")
	called(t, 2, []string{"--set", "pause=1m"}, "of one case")
	called(t, 2, []string{"pause", "--set", "B.paws=1m"}, "--set", `no knob "B.paws"`, "A.clock, A.step")
	called(t, 2, []string{"pause", "--set", "pause=soon"}, "A.pause", "no length of time", "14m@2m10s")
	called(t, 1, []string{"--html", filepath.Join(t.TempDir(), "no", "folder.html")}, "not written")
	called(t, 0, []string{"-h"}, "-generation NAME", "[CASE]")
	if out := called(t, 2, []string{"\x1b[31m"}); strings.Contains(out, "\x1b") {
		t.Errorf("a terminal could obey %q", out)
	}
}

// It tries to break the order: a case begins with its verdicts, reasons and sources; the timeline
// is printed on request only, and polls in it with --all only.
func TestRun_VerdictsFirst_TimelineOnRequest(t *testing.T) {
	t.Parallel()
	args := []string{"two-force", "--generation", "2.6"}
	short := called(t, 0, args, "2.6 (mongos 2.6 and 3.0): one holder, idle for 15m",
		"names the session", "r2.6.12 src/mongo/s/distlock.cpp:750")
	if strings.Contains(short, "take over") || strings.Count(short, "\n") > 6 {
		t.Errorf("the timeline is printed without --timeline: %s", short)
	}
	long := called(t, 0, append(args, "--timeline"), "take over", "forces", "[decides]", "dies")
	all := called(t, 0, append(args, "--all"), "read (find locks)", "ping (update")
	if strings.Contains(long, "ping (update") || len(long)*2 > len(all) {
		t.Errorf("%d bytes, and with --all %d:\n%s", len(long), len(all), long)
	}
	called(t, 0, []string{"sources", "h8", "--generation", "3.2"}, "dead-holder (H8)", "cut-off",
		"dist_lock_catalog_impl.cpp:244")
}

// It tries to break the search for a case: a hole and a part of a name find their cases, several in
// a table; the table names the release that is played in place of a generation.
func TestRun_FindsCases(t *testing.T) {
	t.Parallel()
	called(t, 0, []string{"clock", "--generation", "1.6"}, "clock-ahead", "config-clocks-apart")
	if out := called(t, 0, []string{"H1", "--generation", "1.8"}, "two-force (H1"); strings.Contains(
		out, "H10") {
		t.Errorf("H1 finds H10: %s", out)
	}
	called(t, 0, []string{"sh", "--generation", "3.2"}, "5.0: TWO", "4.0.18: TWO")
}

// It tries to break --set: knobs precede and follow the case, and accidents that cannot happen are
// reported.
func TestRun_SetsKnobs(t *testing.T) {
	t.Parallel()
	called(t, 0, []string{"--set", "pause=14m", "pause", "--set", "generation=1.8"},
		"Set differently: A.pause=14m", "1.8 (mongos", "one holder")
	called(t, 0, []string{"pause", "--generation", "1.8", "--set", "A.late=finalize:1m", "--set",
		"election=5m"}, "did not happen: finalize slow of A", "did not happen: election")
}

// It tries to break the sweep: it names its knobs, draws the boundary with its constants, and
// prints the command that plays it.
func TestRun_Sweeps(t *testing.T) {
	t.Parallel()
	called(t, 0, []string{"sweep", "skew", "--generation", "2.0"}, "mirror.clock", "----------##",
		"from 31s on: LOCK_TIMEOUT",
		"go run ./study config-clocks-apart --generation 2.0 --set mirror.clock=31s")
	called(t, 0, []string{"sweep", "clock-behind", "--generation", "1.8"}, "B.tries=1s, B.clock", "never")
}

// It tries to break the seventh lesson: its case comes out as the course prints it.
func TestRun_TheCaseOfTheCourse(t *testing.T) {
	t.Parallel()
	course := assert.Value(os.ReadFile(filepath.Join("..", "docs", "study.md")))(t)
	_, block, _ := strings.Cut(string(course), "$ go run ./study pause --set ")
	block, _, _ = strings.Cut(block, "```")
	lines := strings.Split(strings.TrimSpace(block), "\n")
	for _, line := range lines[1:] {
		generation, _, _ := strings.Cut(line, " ")
		called(t, 0, append(strings.Fields("pause --generation "+generation+" --set"),
			strings.Fields(lines[0])...), line)
	}
	if len(lines) != 3 {
		t.Errorf("%q", lines)
	}
}

// It tries to break Ctrl-C: it ends the plays, which take long, and writes no page.
func TestRun_Interrupted_Ends(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	page := filepath.Join(t.TempDir(), "page.html")
	var out bytes.Buffer
	if got := run(ctx, []string{"--html", page}, &out, &out); got != 1 {
		t.Errorf("exit code %d: %s", got, &out)
	}
	if _, err := os.Stat(page); err == nil {
		t.Error("there is a page")
	}
}
