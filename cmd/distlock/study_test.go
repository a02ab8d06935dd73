package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mongodlm/internal/study"
)

// It tries to break: a program that reads one play gets its figures, all events and all documents; no server
// is needed for it.
func TestStudy_OnePlay_AsJSON(t *testing.T) {
	t.Parallel()
	r := cli(t, "study", "--generation", "1.8", "--json", "two-force").want(t, 0)
	var one study.Report
	if err := json.Unmarshal([]byte(r.out), &one); err != nil || len(one.Plays) != 1 || one.Plays[0].Two == 0 ||
		len(one.Plays[0].Marks) == 0 || len(one.Plays[0].Versions) == 0 {
		t.Errorf("%v: %.300s", err, r.out)
	}
}

// It tries to break: what cannot be played is refused as a wrong call, and the nearest names are told.
func TestStudy_WrongCalls_AreRefused(t *testing.T) {
	t.Parallel()
	cli(t, "study", "clock-ahaed").want(t, exitUsage, "clock-ahead", "most like it")
	cli(t, "study", "pause", "more").want(t, exitUsage, "unexpected argument")
	cli(t, "study", "pause", "--generation", "4.4").want(t, exitUsage, "1.8, 2.0, 3.2, ours")
	if r := cli(t, "study", "\x1b[31m"); strings.Contains(r.errOut, "\x1b") {
		t.Errorf("a terminal could obey %q", r.errOut)
	}
}

// It tries to break: the table fits into 40 columns, and names every generation of every case.
func TestStudy_Table_FitsANarrowTerminal(t *testing.T) {
	t.Parallel()
	v := &studies{generations: study.Generations()}
	c, _, _ := study.FindCase("pause")
	v.cases = []study.Case{c}
	plays, _ := study.Run(t.Context(), v.cases, v.generations)
	for _, width := range []int{0, 120, 80, 40, 20} {
		var out strings.Builder
		v.table(&out, plays, layout{width: width})
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimSuffix(line, "\n"); width > 0 && cells(line) > width {
				t.Errorf("%d columns: %q", width, line)
			}
		}
		for _, g := range v.generations {
			if !strings.Contains(strings.ToLower(out.String()), g.Name) {
				t.Errorf("%d columns: no %s:\n%s", width, g.Name, &out)
			}
		}
	}
}

// It tries to break: a timeline fits the terminal, and tells when two held the lock and that a write was stale.
func TestStudy_Timeline_FitsTheTerminal(t *testing.T) {
	t.Parallel()
	c, _, _ := study.FindCase("cut-off")
	v := &studies{cases: []study.Case{c}, one: true, generations: study.Generations()}
	plays, _ := study.Run(t.Context(), v.cases, v.generations)
	for _, width := range []int{0, 150, 80, 40} {
		var out strings.Builder
		v.timelines(&out, plays, layout{width: width})
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimSuffix(line, "\n"); width > 0 && cells(line) > width {
				t.Errorf("%d columns: %q", width, line)
			}
		}
		for _, text := range []string{"== ours", "STALE", "! ", "is cut off", "condemned"} {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%d columns: no %q:\n%s", width, text, &out)
			}
		}
	}
}

// It tries to break: in a terminal that is too narrow for anything, nothing of what happened is left out.
func TestStudy_Timeline_VeryNarrow_LeavesNothingOut(t *testing.T) {
	t.Parallel()
	c, _, _ := study.FindCase("cut-off")
	v := &studies{cases: []study.Case{c}, one: true, generations: study.Generations()[:1]}
	plays, _ := study.Run(t.Context(), v.cases, v.generations)
	var out strings.Builder
	events(&out, plays[0], layout{width: 20})
	if strings.Contains(out.String(), "..\n") {
		t.Errorf("cut off:\n%s", &out)
	}
}

// It tries to break: Ctrl-C ends the playing of all cases, which takes long.
func TestStudy_Interrupted_Ends(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted{syscall.SIGINT})
	for _, args := range [][]string{{"study"}, {"study", "--json"}, {"study", "--html", filepath.Join(t.TempDir(), "x")}} {
		_, done := start(ctx, t, args...)
		if r := await(t, done).want(t, exitFailed, "interrupted"); r.out != "" {
			t.Errorf("%s tells of plays that were not:\n%s", args, r.out)
		}
	}
}

// It tries to break: a page that cannot be written is an error, and so is half a page.
func TestStudy_Page_WrittenOrRefused(t *testing.T) {
	t.Parallel()
	cli(t, "study", "pause", "--html", "x.html").want(t, exitUsage, "all cases")
	cli(t, "study", "--html", "").want(t, exitUsage, "name of a file")
	cli(t, "study", "--html", filepath.Join(t.TempDir(), "no", "folder.html")).want(t, exitFailed, "not written", "no such file")
}

// It tries to break: a rule is taken out only of a program that is built for it, and where that cannot be done it
// is said.
func TestStudy_Break_NeedsRuleCaseAndSources(t *testing.T) {
	cli(t, "study", "--break", "no reap").want(t, exitUsage, "a rule and a case")
	cli(t, "study", "--break", "no reap", "pause", "--generation", "1.8").want(t, exitUsage, "ours alone")
	t.Setenv("PATH", t.TempDir())
	cli(t, "study", "--break", "no reap", "late-grab").want(t, exitFailed, "the Go tool is not here")
}

// The same without the sources.
func TestStudy_Break_WithoutSources_IsSaid(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GOWORK", "off")
	cli(t, "study", "--break", "no reap", "late-grab").want(t, exitFailed, "run it in a checkout")
}
