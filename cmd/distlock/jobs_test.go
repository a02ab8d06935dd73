package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/singleton"
)

// It tries to break: what an operator must see of a loop is shown, when it ran, when it runs next,
// what stops it and what failed; and neither a record nor settings that cannot be understood hide
// the others.
func TestJobs_RecordsAndSettings_AreShown(t *testing.T) {
	b := newBase(t)
	cli(t, b.flags("jobs")...).want(t, 0, "no loop or schedule ever ran")
	begun := bson.NewDateTimeFromTime(time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC))
	next := bson.NewDateTimeFromTime(time.Date(2026, 5, 6, 7, 9, 9, 0, time.UTC))
	record := func(name string, more ...bson.E) bson.D {
		return append(bson.D{
			{Key: "_id", Value: name}, {Key: "kind", Value: "loop"}, {Key: "fence", Value: int64(7)},
			{Key: "rev", Value: int64(3)}, {Key: "process", Value: "host:1:1:a"}, {Key: "seen", Value: begun},
			{Key: "state", Value: "done"}, {Key: "begun", Value: begun}, {Key: "ended", Value: begun},
			{Key: "next", Value: next}, {Key: "rounds", Value: int64(12)},
		}, more...)
	}
	b.insert(singleton.RecordsCollection, record("cleanup"))
	b.insert(singleton.RecordsCollection, record("report", bson.E{Key: "failures", Value: int64(4)},
		bson.E{Key: "lastError", Value: "disk \x1b[31mfull"}))
	b.insert(singleton.RecordsCollection,
		bson.D{{Key: "_id", Value: "torn"}, {Key: "fence", Value: "seven"}})
	b.insert(singleton.SettingsCollection,
		bson.D{{Key: "_id", Value: "cleanup"}, {Key: "stopped", Value: true}})
	b.insert(singleton.SettingsCollection,
		bson.D{{Key: "_id", Value: "report"}, {Key: "activeWindow", Value: 5}})
	r := cli(t, b.flags("jobs", "--wide")...).want(t, 0, "cleanup", "stopped", "2026-05-06T07:08:09Z",
		"2026-05-06T07:09:09Z", "host:1:1:a", "report", "activeWindow", "torn", "fence")
	if strings.Contains(r.out, "\x1b") {
		t.Errorf("a terminal could obey %q", r.out)
	}
	var got rota
	if err := json.Unmarshal([]byte(cli(t, b.flags("jobs", "--json")...).want(t, 0).out),
		&got); err != nil {
		t.Fatal(err)
	}
	if len(got.Loops) != 3 || got.Loops[0].Stopped != "stopped" || got.Loops[1].Failures != 4 ||
		got.Loops[1].Malformed == "" || got.Loops[2].Malformed == "" || got.Loops[0].Malformed != "" {
		t.Errorf("%+v", got.Loops)
	}
}

// It tries to break: every row is counted once, in its own state, and a wrong call says what to
// give.
func TestJobs_RowsOfEachState_AreCounted(t *testing.T) {
	b := newBase(t)
	for i, state := range []string{"", "ready", "claimed", "claimed", "retrying", "dead", "done", "done", "done"} {
		doc := bson.D{{Key: "_id", Value: i}}
		if state != "" {
			doc = append(doc, bson.E{Key: "claim", Value: bson.D{{Key: "state", Value: state}}})
		}
		b.insert("jobs", doc)
	}
	cli(t, b.flags("jobs", "jobs")...).want(t, 0, "2 ready, 2 claimed, 1 retrying, 1 dead, 3 done")
	cli(t, b.flags("jobs", "jobs", "--json")...).want(t, 0, `"claimed": 2`, `"dead": 1`)
	cli(t, b.flags("jobs", "none")...).want(t, 0, "0 ready, 0 claimed")
	cli(t, b.flags("jobs", "a", "b")...).want(t, exitUsage, "one collection")
	cli(t, b.flags("jobs", "--field", "a")...).want(t, exitUsage, "COLLECTION")
	cli(t, b.flags("jobs", "jobs", "--field", "a.b")...).want(t, exitUsage, "--field")
}
