package main

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// It tries to break: every row is counted once, in its own state, and a wrong call says what to give.
func TestClaims_RowsOfEachState_AreCounted(t *testing.T) {
	b := newBase(t)
	for i, state := range []string{"", "ready", "claimed", "claimed", "retrying", "dead", "done", "done", "done"} {
		doc := bson.D{{Key: "_id", Value: i}}
		if state != "" {
			doc = append(doc, bson.E{Key: "claim", Value: bson.D{{Key: "state", Value: state}}})
		}
		b.insert("jobs", doc)
	}
	cli(t, b.flags("claims", "jobs")...).want(t, 0, "2 ready, 2 claimed, 1 retrying, 1 dead, 3 done")
	cli(t, b.flags("claims", "jobs", "--json")...).want(t, 0, `"claimed": 2`, `"dead": 1`)
	cli(t, b.flags("claims", "none")...).want(t, 0, "0 ready, 0 claimed")
	cli(t, b.flags("claims")...).want(t, exitUsage, "one collection")
	cli(t, b.flags("claims", "jobs", "--field", "a.b")...).want(t, exitUsage, "--field")
}
