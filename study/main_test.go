package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

// TestMain makes all tests share the plays.
func TestMain(m *testing.M) {
	var plays sync.Map // functions that return a Play, by case and generation
	player = func(c Case, g Generation) Play {
		once, _ := plays.LoadOrStore(fmt.Sprint(c.Name, g.Name),
			sync.OnceValue(func() Play { return play(c, g) }))
		return once.(func() Play)()
	}
	effort.Main(m)
}

// called runs the program and checks the exit code. The output must contain all texts.
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

// A wrong command line is refused, and the error lists the valid names. The program prints no
// control characters of its arguments.
func TestRun_WrongCalls_AreRefused(t *testing.T) {
	t.Parallel()
	called(t, 2, []string{"clock-ahaed"}, "the cases are dead-holder, clock-ahead")
	called(t, 2, []string{"pause", "more"}, "unexpected argument")
	called(t, 2, []string{"pause", "--generation", "7.0"}, "1.8, 2.0, 2.6, 3.2, ours")
	called(t, 2, []string{"pause", "--html", "x.html"}, "all cases")
	called(t, 2, []string{"--timeline"}, "one case")
	called(t, 1, []string{"--html", filepath.Join(t.TempDir(), "no", "folder.html")},
		"cannot write the page")
	called(t, 0, []string{"-h"}, "-generation NAME", "[CASE]")
	if out := called(t, 2, []string{"\x1b[31m"}); strings.Contains(out, "\x1b") {
		t.Errorf("a terminal could obey %q", out)
	}
}

// The output of a case begins with its verdicts, reasons and sources. The timeline is printed only
// on request, and its polls only with --all.
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

// The program finds cases by the number of a hole or by a part of a name. It prints several cases
// as a table. If a single release plays in place of a generation, the table names the release.
func TestRun_FindsCases(t *testing.T) {
	t.Parallel()
	called(t, 0, []string{"clock", "--generation", "1.8"}, "clock-ahead", "config-clocks-apart")
	if out := called(t, 0, []string{"H1", "--generation", "1.8"}, "two-force (H1"); strings.Contains(
		out, "H10") {
		t.Errorf("H1 finds H10: %s", out)
	}
	called(t, 0, []string{"sh", "--generation", "3.2"}, "5.0: TWO", "4.0.18: TWO")
}

// Each command line in docs/study.md works, and prints the lines that follow it in the document.
func TestRun_TheCommandsOfTheCourse(t *testing.T) {
	t.Parallel()
	if effort.Race {
		t.Skip("with the race detector the plays take minutes")
	}
	course := string(assert.Value(os.ReadFile(filepath.Join("..", "docs", "study.md")))(t))
	commands, figures := 0, 0
	for i, block := range strings.Split(course, "```") {
		if i%2 == 0 || !strings.Contains(block, "go run ./study") {
			continue
		}
		for _, text := range strings.Split(block, "go run ./study")[1:] {
			command, printed, _ := strings.Cut(text, "\n")
			command, _, _ = strings.Cut(command, "#")
			var want []string
			for line := range strings.SplitSeq(strings.TrimSuffix(printed, "$ "), "\n") {
				if line != "" {
					want = append(want, line+"\n")
				}
			}
			called(t, 0, strings.Fields(command), want...)
			commands++
			figures += len(want)
		}
	}
	if commands < 20 || figures < 30 {
		t.Errorf("%d commands with %d lines", commands, figures)
	}
}

// Ctrl-C ends the plays. The program then writes no page.
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
