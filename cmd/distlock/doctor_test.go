package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

func TestDoctor_EmbeddedServer_IsFit(t *testing.T) {
	b := newBase(t)
	r := b.cli("doctor", "--rounds", "3", "--contenders", "4")
	r.want(t, 0, "ferretdb", "front of the embedded", "no change streams",
		"3 of 3 rounds with exactly one winner", "verdict: fit")
	got := b.cli("doctor", "--json", "--rounds", "2", "--contenders", "2").report(t)
	if !got.Fit || !got.Embedded || got.Race == nil || got.Race.Acquire.One != 2 ||
		len(got.Weaker) == 0 || len(got.Refused) > 0 {
		t.Errorf("report is %+v", got)
	}
}

// The command "distlock doctor" warns of a dead process, and shows the number and the names of the
// locks that the process holds. The command warns even if no contender has declared the process
// dead. The warning changes the exit code. A live process causes no warning.
func TestDoctor_DeadHolder_IsReportedWithItsOwnCode(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]bson.D{
		"silent": {{Key: "seq", Value: int64(1)}},
		"silent and declared dead": {{Key: "seq", Value: int64(1)},
			{Key: "condemned", Value: bsontest.D("by", "x", "evidence", "y")}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBase(t)
			for i := range 7 {
				b.held(fmt.Sprint("job ", i), 41)
			}
			prepare(t, b)
			b.ping(otherProcess, time.Hour, mark...)
			args := b.flags("doctor", "--rounds", "1", "--contenders", "2")
			cli(t, args...).want(t, exitWarned, otherProcess+" has not pinged for 1h0m", "it holds 7 locks, "+
				"which the next contenders take over: job 0, job 1, job 2, job 3, job 4 and 2 more",
				"verdict: fit")
			r := cli(t, append(args, "--json")...).report(t)
			if len(r.Warnings) != 1 ||
				strings.Contains(r.Warnings[0], "declared dead") != (name != "silent") {
				t.Errorf("warnings %q", r.Warnings)
			}
			now := bson.NewDateTimeFromTime(clock.System().Now().Wall)
			b.update(catalog.PingsCollection, otherProcess, "$set", bsontest.D("ping", now),
				"$unset", bsontest.D("condemned", 1))
			cli(t, args...).want(t, 0, "verdict: fit")
		})
	}
}

func TestLimitations_KindsOfServer(t *testing.T) {
	t.Parallel()
	full := catalog.Server{
		Kind: catalog.ReplicaSet, Version: "7.0.5", Transactions: true, ChangeStreams: true,
		PipelineUpdates: true,
	}
	if w := limitations(full, "distlock"); len(w) > 0 {
		t.Errorf("a replica set is said to be weaker than itself: %q", w)
	}
	lacking := catalog.Server{Kind: catalog.ReplicaSet, Version: "7.0.5", PipelineUpdates: true}
	w := strings.Join(limitations(lacking, "config"), "\n")
	if !strings.Contains(w, "--database distlock") {
		t.Errorf("nothing is advised for database config: %s", w)
	}
	lacking.ConfigServer = true
	w = strings.Join(limitations(lacking, "config"), "\n")
	if strings.Contains(w, "--database distlock") || !strings.Contains(w, "15 minutes") {
		t.Errorf("wrong advice for a config server: %s", w)
	}
}

func TestReport_CompareClocks_WarnsBeyondTheSkew(t *testing.T) {
	t.Parallel()
	now := clock.System().Now()
	for ahead, warned := range map[time.Duration]bool{
		time.Second: false, -time.Second: false, time.Minute: true, -time.Minute: true,
	} {
		var r report
		r.compareClocks(catalog.Server{Time: now.Wall.Add(ahead)}, now, now)
		if got := slices.ContainsFunc(r.Warnings, func(w string) bool {
			return strings.Contains(w, "NTP")
		}); got != warned {
			t.Errorf("a server %v ahead: warned is %v, want %v", ahead, got, warned)
		}
	}
}

// The command "distlock doctor" warns of many idle locks with generated names. A held lock or a
// recently used lock is not idle.
func TestIdleLocks_Many_AreWarnedOf(t *testing.T) {
	b := newBase(t)
	const many = 20
	docs := make([]any, many+2)
	for i := range docs {
		at, state := time.Now().Add(-2*idleAge), 0
		switch i {
		case 0:
			at = time.Now()
		case 1:
			state = 2
		}
		docs[i] = bsontest.D("_id", fmt.Sprint("order ", i), "state", state, "when",
			bson.NewDateTimeFromTime(at), "ts", bson.NewObjectID(), "process", "", "who", "", "why", "")
	}
	assert.Value(b.db.Collection(catalog.LocksCollection).InsertMany(t.Context(), docs))(t)
	for least, warned := range map[int64]bool{many: true, many + 1: false} {
		var r report
		assert.NoErr(t, idleLocks(t.Context(), b.db, least, &r))
		if got := strings.Contains(strings.Join(r.Warnings, " "), "20 free locks"); got != warned {
			t.Errorf("a warning from %d idle locks on: %q", least, r.Warnings)
		}
	}
}
