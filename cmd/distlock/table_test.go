package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"mongodlm/internal/test/assert"
)

// No line of a table is wider than its terminal. The table shows the data that a break needs.
func TestTable_Terminal_FitsItsWidth(t *testing.T) {
	b := newBase(t)
	fillLines(b)
	b.hold("a name that is long enough to fill half of a terminal by itself", 1795228717123)
	b.held("\u9396\u9396\u9396\u9396\u9396\u9396\u9396\u9396\u9396\u9396\u9396\u9396", 1795228717124)
	st, err := (&connection{uri: uri, database: b.name}).open(t.Context(), 0, zerolog.Nop())
	assert.Must(t, err)
	defer st.close()
	found, err := (&locks{lister: lister{connection: connection{database: b.name}}}).collect(
		t.Context(), st)
	assert.Must(t, err)
	found.Malformed = nil
	for _, width := range []int{200, 132, 80, 60, 40} {
		var out strings.Builder
		found.print(&out, layout{width: width})
		for text := range strings.Lines(out.String()) {
			if n := cells(strings.TrimSuffix(text, "\n")); n > width {
				t.Errorf("a line of %d columns in a terminal of %d: %s", n, width, text)
			}
		}
		if !strings.Contains(out.String(), "1795228717123") {
			t.Errorf("no fence in a terminal of %d:\n%s", width, out.String())
		}
		if width == 80 {
			golden(t, "narrow.golden", out.String())
		}
	}
}

func TestTable_IdleColumns_GoFirst(t *testing.T) {
	t.Parallel()
	tab := table{
		columns: []column{
			{title: "NAME", least: 4}, {title: "MODE", idle: "exclusive"}, {title: "WHY", least: 4},
		},
		rows: [][]string{{"job", "exclusive", "nightly"}, {"other", "-", "weekly report"}},
	}
	var out strings.Builder
	tab.print(&out, layout{width: 24})
	want := "NAME   WHY\n" +
		"job    nightly\n" +
		"other  weekly report\n"
	if out.String() != want {
		t.Errorf("want\n%s\ngot\n%s", want, out.String())
	}
	out.Reset()
	tab.print(&out, layout{width: 16})
	want = "NAME   WHY\n" +
		"job    nightly\n" +
		"other  weekly ..\n" +
		"(shortened; --..\n"
	if out.String() != want {
		t.Errorf("want\n%s\ngot\n%s", want, out.String())
	}
}

// Names that differ at their start, at their end or in their middle stay different in a narrow
// terminal.
func TestTable_NarrowTerminal_NoTwoRowsAreAlike(t *testing.T) {
	t.Parallel()
	for name, format := range map[string]string{
		"end":    "payments-worker-deployment-7d9f8b6c5d-%03d",
		"middle": "tenant-%03d-nightly-export-of-everything",
		"start":  "%03d-a-name-with-a-very-long-common-rest-of-it",
	} {
		tab := table{columns: []column{
			{title: "NAME", least: 8}, {title: "MODE", least: 9}, {title: "FENCE"}, {title: "WHY", least: 4},
		}}
		for i := range 300 {
			tab.rows = append(tab.rows,
				[]string{fmt.Sprintf(format, i), "exclusive", "1795228717123", "nightly export"})
		}
		for _, width := range []int{200, 80, 60, 44} {
			var out strings.Builder
			tab.print(&out, layout{width: width})
			seen := map[string]bool{}
			for line := range strings.Lines(out.String()) {
				if seen[line] || cells(strings.TrimSuffix(line, "\n")) > width {
					t.Fatalf("%s, %d columns: a row is not unique, or too wide: %s", name, width, line)
				}
				seen[line] = true
			}
		}
	}
}

func TestLabel_WhatCannotBeSeen_IsQuoted(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"job":                "job",
		"job 7":              "job 7",
		"Z\u00fcrich":        "Z\u00fcrich",
		"\u0646\u0648\u0631": "\u0646\u0648\u0631",
		" job":               `" job"`,
		"job ":               `"job "`,
		" ":                  `" "`,
		"a  b":               `"a  b"`,
		"-":                  `"-"`,
		`"job"`:              `"\"job\""`,
		"a\tb":               `"a\tb"`,
		"job\u200b":          `"job\u200b"`,
		"job\u00a0":          `"job\u00a0"`,
		"\u202egnp.exe":      `"\u202egnp.exe"`,
		"\u3164":             `"\u3164"`,
		"\u2800":             `"\u2800"`,
		"\u0301job":          "\"\u0301job\"",
		"\x1b[2J":            `"\x1b[2J"`,
		"\xff":               `"\xff"`,
	} {
		if got := label(name); got != want {
			t.Errorf("label(%q): want %s, got %s", name, want, got)
		}
	}
}

func TestShort_KeepsHostAndNumber(t *testing.T) {
	t.Parallel()
	for process, want := range map[string]string{
		"vm:31586:1795288472:45b2d007-5c02-430c-b0d9-fb6ee83bc3a7": "vm:31586",
		"mongos-1:27017:1700000000:41":                             "mongos-1:27017",
		"fe80::1:31586:1795288472:45b2d007":                        "fe80::1:31586",
		"ConfigServer":                                             "ConfigServer",
		"":                                                         "",
	} {
		if got := short(process); got != want {
			t.Errorf("short(%q): want %q, got %q", process, want, got)
		}
	}
}
