package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/assert"
)

// It tries to break: dead rows are shown with all that is known of why, whatever their _id is, and
// each is found again by the text that was shown; what is not dead is not touched, and says so by
// the exit code.
func TestClaims_DeadRows_ShownRetriedDiscarded(t *testing.T) {
	b := newBase(t)
	at := bson.NewDateTimeFromTime(time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC))
	dead := bson.D{{Key: "state", Value: "dead"}, {Key: "attempts", Value: int64(2)}, {Key: "deadAt", Value: at},
		{Key: "error", Value: "no \x1b[31mroute"}, {Key: "errors", Value: bson.A{
			bson.D{{Key: "attempt", Value: int64(1)}, {Key: "at", Value: at}, {Key: "process", Value: "host:1:2:ab"}, {Key: "error", Value: "busy"}},
			bson.D{{Key: "at", Value: at}, {Key: "error", Value: "died"}}}}}
	oid := bson.NewObjectID()
	ids := []any{"mail 1", 7, oid, "7", "all", bson.D{{Key: "a", Value: int32(1)}}, 1.5}
	for _, id := range ids {
		b.insert("jobs", bson.D{{Key: "_id", Value: id}, {Key: "claim", Value: dead}})
	}
	b.insert("jobs", bson.D{{Key: "_id", Value: "done"}, {Key: "claim", Value: bson.D{{Key: "state", Value: "done"}}}})
	cli(t, b.flags("claims", "jobs")...).want(t, 0, "7 dead, 1 done")
	r := cli(t, b.flags("claims", "jobs", "--dead")...).want(t, 0, `"mail 1"`, oid.Hex(), "2026-05-06T07:08:09Z", "attempts 2",
		"busy", "host:1", "died")
	if strings.Contains(r.out, "\x1b") {
		t.Errorf("a terminal could obey %q", r.out)
	}
	cli(t, b.flags("claims", "jobs", "--dead", "--limit", "2")...).want(t, 0, "and more")
	var got morgue
	assert.Must(t, json.Unmarshal([]byte(cli(t, b.flags("claims", "jobs", "--dead", "--json")...).want(t, 0).out), &got))
	if len(got.Dead) != len(ids) || got.More || len(got.Dead[0].Errors) != 2 || got.Dead[0].Errors[1].Attempt != 2 {
		t.Fatalf("%+v", got)
	}
	for i, row := range got.Dead {
		flag, said := "--retry", `"retried": 1`
		if i%2 == 1 {
			flag, said = "--discard", `"discarded": 1`
		}
		cli(t, b.flags("claims", "jobs", flag, row.ID, "--json")...).want(t, 0, said)
		cli(t, b.flags("claims", "jobs", flag, row.ID)...).want(t, exitFailed, "0 dead rows", "1 of 1 rows")
	}
	cli(t, b.flags("claims", "jobs")...).want(t, 0, "4 ready, 0 claimed, 0 retrying, 0 dead, 1 done")
	cli(t, b.flags("claims", "jobs", "--discard", `"done"`)...).want(t, exitFailed)
	for i := range 3 {
		b.insert("jobs", bson.D{{Key: "_id", Value: 100 + i}, {Key: "claim", Value: dead}})
	}
	cli(t, b.flags("claims", "jobs", "--retry", "100", "--retry", "5")...).want(t, exitFailed, "1 of 2 rows")
	cli(t, b.flags("claims", "jobs", "--retry", "all")...).want(t, 0, "2 dead rows")
	cli(t, b.flags("claims", "jobs", "--discard", "all")...).want(t, 0, "0 dead rows")
	cli(t, b.flags("claims", "jobs", "--dead")...).want(t, 0, "no row of")
}

// A wrong call says what to give, and changes nothing.
func TestClaims_WrongCalls(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"claims --dead":                     "collection is missing",
		"claims a b":                        "one collection",
		"claims a --dead --retry 1":         "one of",
		"claims a --retry 1 --discard 1":    "one of",
		"claims a --limit 5":                "--dead",
		"claims a --dead --limit 0":         "at least 1",
		"claims a --retry \"x":              "no text in quotes",
		"claims a --retry {x":               "no extended JSON",
		"claims a --dead --field claim.err": "--field",
	} {
		cli(t, append(strings.Split(line, " "), "--uri", uri)...).want(t, exitUsage, want)
	}
}
