package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if err := json.Unmarshal([]byte(out), &one); err != nil || len(one.Plays) != 1 || one.Plays[0].Two == 0 ||
		len(one.Plays[0].Marks) == 0 || len(one.Plays[0].Versions) == 0 {
		t.Errorf("%v: %.300s", err, out)
	}
}

// It tries to break: what cannot be played is refused as a wrong call, and the nearest names are
// told.
func TestRun_WrongCalls_AreRefused(t *testing.T) {
	t.Parallel()
	called(t, 2, []string{"clock-ahaed"}, "clock-ahead", "most like it")
	called(t, 2, []string{"pause", "more"}, "unexpected argument")
	called(t, 2, []string{"pause", "--generation", "4.4"}, "1.8, 2.0, 3.2, ours")
	called(t, 2, []string{"pause", "--html", "x.html"}, "all cases")
	called(t, 1, []string{"--html", filepath.Join(t.TempDir(), "no", "folder.html")}, "not written",
		"no such file")
	called(t, 0, []string{"-h"}, "-generation NAME", "[CASE]")
	if _, said := called(t, 2, []string{"\x1b[31m"}); strings.Contains(said, "\x1b") {
		t.Errorf("a terminal could obey %q", said)
	}
}

// It tries to break: Ctrl-C ends the playing of all cases, which takes long, and leaves the page as
// it was.
func TestRun_Interrupted_Ends(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	page := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(page, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--json"}, {"--html", page}} {
		var out, errOut bytes.Buffer
		if code := run(ctx, args, &out, &errOut); code != 1 || out.Len() > 0 ||
			!strings.Contains(errOut.String(), "canceled") {
			t.Errorf("%q: exit code %d: %s%s", args, code, &out, &errOut)
		}
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
	plays, err := study.Run(t.Context(), cases, generations)
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{0, 200, 150, 100, 80, 40, 28} {
		var tableOut, timeline strings.Builder
		table(&tableOut, cases, generations, plays, width)
		timelines(&timeline, c, plays, width)
		for line := range strings.Lines(tableOut.String() + timeline.String()) {
			if line = strings.TrimSuffix(line, "\n"); width > 0 && len(line) > width {
				t.Errorf("%d columns: %q", width, line)
			}
		}
		for _, text := range []string{"cut-off", "1.8", "2.0", "3.2", "OURS", "TWO for", "holder"} {
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
