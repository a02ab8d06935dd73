package main

import (
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

// No name is cut in a file, in a pipe or with --wide, however long it is.
func TestListings_LongestNames_AreWholeInAPipe(t *testing.T) {
	b := newBase(t)
	long := strings.Repeat("nightly-report-of-", 56) + "mail" // 1,012 bytes
	b.hold(long, 7)
	line := bsontest.D("$set", bsontest.D(
		"waiters", bson.A{bsontest.D("ts", bson.NewObjectID(), "process", stranger, "who", stranger+
			":go:1", "why", long, "since", bson.NewDateTimeFromTime(clock.System().Now().Wall))}))
	if _, err := b.db.Collection(catalog.LocksCollection).UpdateOne(t.Context(),
		bsontest.D("_id", long), line); err != nil {
		t.Fatal(err)
	}
	b.insert(history.Collection, history.Entry{ID: bson.NewObjectID(), Name: long, Kind: "lost",
		At: clock.System().Now().Wall, Session: bson.NewObjectID(), Process: stranger, Cause: long})
	for _, args := range [][]string{{"locks"}, {"locks", "--wide"}, {"locks", long}, {"ps"},
		{"ps", "--wide"}, {"history"}, {"history", "--wide", "--limit", "1"}} {
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

// At 80 columns "history" and "locks NAME" show whole reasons of holders, waiters and events.
func TestListings_Terminal_ReasonsAreWhole(t *testing.T) {
	why := strings.TrimSpace(strings.Repeat("because the nightly report of all mail was late again ",
		10))
	e := history.Entry{At: time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC), Kind: "lost", Name: "reports",
		Process: stranger, Cause: why}
	d := Dossier{History: chronicle{Events: []pastRow{pastRowOf(e)}}}
	d.holders = append(d.holders,
		distlock.LockInfo{Name: "reports", Held: true, Mode: exclusive, Process: stranger, Why: why})
	line := queue{Waiters: []waiterRow{{Name: "reports", Place: 1, Mode: exclusive, Process: stranger,
		Why: why}}}
	var out strings.Builder
	d.print(&out, layout{width: 80}, line)
	for text := range strings.Lines(out.String()) {
		if cells(strings.TrimSuffix(text, "\n")) > 80 {
			t.Errorf("too wide: %s", text)
		}
	}
	if flat := strings.Join(strings.Fields(out.String()), " "); strings.Count(flat, why) != 3 {
		t.Errorf("not three times whole:\n%s", out.String())
	}
}
