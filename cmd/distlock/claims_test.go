package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

// Dead rows are shown with their complete errors, for any _id. The printed text of an _id finds its
// row again. Other rows are unchanged, and the exit code reports unsuitable ids.
func TestClaims_DeadRows_ShownRetriedDiscarded(t *testing.T) {
	b := newBase(t)
	at := bson.NewDateTimeFromTime(time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC))
	dead := bsontest.D("state", "dead", "attempts", int64(2), "fence", int64(2), "deadAt", at,
		"error", "no \x1b[31mroute", "errors", bson.A{
			bsontest.D("attempt", int64(1), "at", at, "process", "host:1:2:ab", "error", "busy"),
			bsontest.D("attempt", int64(2), "at", at, "error", "died")})
	oid := bson.NewObjectID()
	ids := []any{"mail 1", 7, oid, "7", "all", bsontest.D("a", int32(1)), 1.5}
	for _, id := range ids {
		b.insert("jobs", bsontest.D("_id", id, "claim", dead))
	}
	b.insert("jobs", bsontest.D("_id", "done", "claim", bsontest.D("state", "done")))
	b.cli("claims", "jobs").want(t, 0, "7 dead, 1 done")
	r := b.cli("claims", "jobs", "--dead").want(t, 0, `"mail 1"`, oid.Hex(), "2026-05-06T07:08:09Z",
		"attempts 2", "busy", "host:1", "died")
	if strings.Contains(r.out, "\x1b") {
		t.Errorf("a terminal could obey %q", r.out)
	}
	b.cli("claims", "jobs", "--dead", "--limit", "2").want(t, 0, "and more")
	var got morgue
	assert.Must(t, json.Unmarshal([]byte(b.cli("claims", "jobs", "--dead", "--json").want(t, 0).out),
		&got))
	if len(got.Dead) != len(ids) || got.More || len(got.Dead[0].Errors) != 2 ||
		got.Dead[0].Errors[1].Attempt != 2 {
		t.Fatalf("%+v", got)
	}
	for i, row := range got.Dead {
		flag, said := "--retry", `"retried": 1`
		if i%2 == 1 {
			flag, said = "--discard", `"discarded": 1`
		}
		b.cli("claims", "jobs", flag, row.ID, "--json").want(t, 0, said)
		b.cli("claims", "jobs", flag, row.ID).want(t, exitFailed, "0 dead rows", "1 of 1 rows")
	}
	b.cli("claims", "jobs").want(t, 0, "4 ready, 0 claimed, 0 retrying, 0 dead, 1 done")
	b.cli("claims", "jobs", "--discard", `"done"`).want(t, exitFailed)
	for i := range 3 {
		b.insert("jobs", bsontest.D("_id", 100+i, "claim", dead))
	}
	b.cli("claims", "jobs", "--retry", "100", "--retry", "5").want(t, exitFailed, "1 of 2 rows")
	b.cli("claims", "jobs", "--retry", "all").want(t, 0, "2 dead rows")
	b.cli("claims", "jobs", "--discard", "all").want(t, 0, "0 dead rows")
	b.cli("claims", "jobs", "--dead").want(t, 0, "no row of")
}

// The flag --repair makes a claimed row without a slot ready again, and changes no other row. A
// queue can be paused and resumed.
func TestClaims_RepairAndPause(t *testing.T) {
	b := newBase(t)
	b.insert("jobs", bsontest.D("_id", 1, "claim", bsontest.D("state", "claimed")))
	b.insert("jobs", bsontest.D("_id", 2, "claim", bsontest.D("state", "claimed", "slot", "s", "session",
		bson.NewObjectID(), "batch", bson.NewObjectID())))
	b.cli("claims", "jobs").want(t, 0, "1 rows can never be claimed", "claim.slot")
	b.cli("claims", "jobs", "--repair").want(t, 0, "1 claimed rows", "ready again")
	b.cli("claims", "jobs").want(t, 0, "1 ready, 1 claimed")
	b.cli("claims", "pause", "jobs").want(t, 0, "is paused")
	b.cli("claims", "jobs").want(t, 0, "is paused")
	b.cli("claims", "resume", "jobs", "--json").want(t, 0, `"paused": false`)
	if r := b.cli("claims", "jobs"); strings.Contains(r.out, "paused") {
		t.Errorf("after resume: %s", r.out)
	}
}
