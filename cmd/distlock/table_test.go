package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/bsontest"
)

// No line of a table is wider than its terminal. A narrow table shows the processes and the marks
// rather than the fence, which "distlock locks NAME" shows.
func TestTable_Terminal_FitsItsWidth(t *testing.T) {
	b := newBase(t)
	fillQueues(b)
	b.hold("a name that is long enough to fill half of a terminal by itself", 1795228717123)
	b.held("\u9396\u9396\u9396\u9396\u9396\u9396\u9396\u9396\u9396\u9396\u9396\u9396", 1795228717124)
	found := collected(b, new(locks).collect)
	found.Malformed = nil
	for _, width := range []int{200, 132, 80, 60, 40} {
		var out strings.Builder
		found.print(&out, layout(width))
		checkWidth(t, out.String(), width)
		for text, least := range map[string]int{"1795228717123": 132, "QUEUE  MARKS": 80, "bad:5": 40} {
			if shown := strings.Contains(out.String(), text); shown != (width >= least) {
				t.Errorf("%s in a terminal of %d: %v\n%s", text, width, shown, out.String())
			}
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
			{title: "NAME", minWidth: 4}, {title: "MODE", blank: "exclusive"}, {title: "WHY", minWidth: 4},
		},
		rows: [][]string{{"job", "exclusive", "nightly"}, {"other", "-", "weekly report"}},
	}
	var out strings.Builder
	tab.print(&out, layout(24))
	want := "NAME   WHY\n" +
		"job    nightly\n" +
		"other  weekly report\n"
	if out.String() != want {
		t.Errorf("want\n%s\ngot\n%s", want, out.String())
	}
	out.Reset()
	tab.print(&out, layout(16))
	want = "NAME   WHY\n" +
		"job    nightly\n" +
		"other  weekly ..\n" +
		"(shortened; --..\n"
	if out.String() != want {
		t.Errorf("want\n%s\ngot\n%s", want, out.String())
	}
}

// In a narrow terminal, names and processes that differ only at the start, in the middle or at the
// end remain different.
func TestTable_NarrowTerminal_NoTwoRowsAreAlike(t *testing.T) {
	t.Parallel()
	for name, format := range map[string]string{
		"process, end":    "payments-worker-deployment-7d9f8b6c5d-%03d",
		"process, middle": "tenant-%03d-nightly-export-of-everything:1",
		"end":             "payments-worker-deployment-7d9f8b6c5d-%03d",
		"middle":          "tenant-%03d-nightly-export-of-everything",
		"start":           "%03d-a-name-with-a-very-long-common-rest-of-it",
	} {
		tab := table{columns: []column{
			{title: "NAME", minWidth: 8}, {title: "MODE", minWidth: 9}, {title: "FENCE", spare: true},
			{title: "HOLDER", minWidth: 8, process: true}, {title: "WHY", minWidth: 4},
		}}
		for i := range 300 {
			tab.rows = append(tab.rows,
				[]string{fmt.Sprintf(format, i), "exclusive", "1795228717123", "host:1", "nightly export"})
		}
		if strings.HasPrefix(name, "process") {
			for _, row := range tab.rows {
				row[0], row[3] = "pool", row[0]
			}
		}
		for _, width := range []int{200, 80, 60, 44} {
			var out strings.Builder
			tab.print(&out, layout(width))
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

func TestLabel_InvisibleCharacters_AreQuoted(t *testing.T) {
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

// In a file, in a pipe or with --wide, a listing shows each name completely, however long the name
// is.
func TestListings_LongestNames_AreWholeInAPipe(t *testing.T) {
	b := newBase(t)
	long := strings.Repeat("nightly-report-of-", 56) + "mail" // 1,012 bytes
	b.hold(long, 7)
	b.update(catalog.LocksCollection, long, "$set", bsontest.D("waiters",
		bson.A{entryDoc(otherProcess, long, catalog.Exclusive, 0, 0)}))
	b.insert(history.Collection, history.Entry{ID: bson.NewObjectID(), Name: long, Kind: "lost",
		At: clock.System().Now().Wall, Session: bson.NewObjectID(), Process: otherProcess, Cause: long})
	b.insert("rows", bsontest.D("claim", bsontest.D("state", "dead", "error", "x", "errors",
		bson.A{bsontest.D("attempt", int64(1), "error", long)})))
	for _, args := range [][]string{{"locks"}, {"locks", "--wide"}, {"locks", long}, {"ps"},
		{"ps", "--wide"}, {"history"}, {"history", "--wide", "--limit", "1"},
		{"claims", "rows", "--dead"}} {
		if out := b.cli(args...).want(t, 0).out; !strings.Contains(out, long) {
			t.Errorf("%.60q cuts the name:\n%s", args, out)
		}
	}
	for command, times := range map[string]int{"locks": 3, "history": 2} { // reason and cause
		if out := b.cli(command).out; strings.Count(out, long) != times {
			t.Errorf("%s cuts a text:\n%s", command, out)
		}
	}
}

// On a terminal of 80 columns, "distlock history" and "distlock locks NAME" show the whole reasons
// of holders and events.
func TestListings_Terminal_ReasonsAreWhole(t *testing.T) {
	why := strings.TrimSpace(strings.Repeat("because the nightly report of all mail was late again ",
		10))
	e := history.Entry{At: time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC), Kind: "lost", Name: "reports",
		Process: otherProcess, Cause: why}
	d := details{History: eventList{Events: []eventRow{eventRowOf(e)}}}
	d.holders = append(d.holders,
		distlock.LockInfo{Name: "reports", Held: true, Mode: "exclusive", Process: otherProcess,
			Why: why})
	var out strings.Builder
	d.print(&out, layout(80))
	checkWidth(t, out.String(), 80)
	if flat := strings.Join(strings.Fields(out.String()), " "); strings.Count(flat, why) != 2 {
		t.Errorf("not twice whole:\n%s", out.String())
	}
}

// Process ids on hosts of 255 bytes that differ only at the end remain different.
func TestLayout_Process_LongHostsRemainDifferent(t *testing.T) {
	t.Parallel()
	for _, l := range []layout{0, 80} {
		id := func(end string) string {
			return l.process(strings.Repeat("x", 253) + end + ":7:1700000000:u")
		}
		if id("-a") == id("-b") {
			t.Errorf("with %d columns both are %q", l, id("-a"))
		}
	}
}

// A word that is longer than a line stays whole, so that a command can be copied.
func TestWrap_LongWord_IsWhole(t *testing.T) {
	t.Parallel()
	const command = `db.getSiblingDB("a").locks.createIndex({"sharers.process":1},{"name":"x"})`
	var out strings.Builder
	wrap(&out, 40, "  - there is no index on this field, create it with "+command+" now", "    ")
	want := "  - there is no index on this field,\n    create it with\n" + command + "\n    now\n"
	if out.String() != want {
		t.Error(out.String())
	}
}
