package main

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/bsontest"
	"mongodlm/singleton"
)

// The command "distlock claims" lists dead rows with any type of _id and with all their errors. A
// printed _id selects the row for a retry or a removal. If the row is not dead, the command fails.
func TestClaims_DeadRows_ShownRetriedDiscarded(t *testing.T) {
	b := newBase(t)
	at := bson.NewDateTimeFromTime(time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC))
	dead := bsontest.D("state", "dead", "attempts", int64(2), "fence", int64(2), "deadAt", at,
		"error", "no \x1b[31mroute", "errors", bson.A{
			bsontest.D("attempt", int64(1), "at", at, "process", "host:1:2:ab", "error", "busy"),
			bsontest.D("attempt", int64(2), "at", at, "error", "died")})
	oid := bson.NewObjectID()
	mail := "mail 1" + strings.Repeat(" of a long batch", 20)
	ids := []any{mail, 7, oid, "7", "all", bsontest.D("a", int32(1)), 1.5, true, "true", nil, "null"}
	for _, id := range ids {
		b.insert("jobs", bsontest.D("_id", id, "claim", dead))
	}
	b.insert("jobs", bsontest.D("_id", "done", "claim", bsontest.D("state", "done")))
	b.cli("claims", "jobs").want(t, 0, "11 dead, 1 done")
	r := b.cli("claims", "jobs", "--dead").want(t, 0, `"`+mail+`"`, oid.Hex(), "2026-05-06T07:08:09Z",
		"attempts 2", "busy", "host:1", "died")
	if strings.Contains(r.out, "\x1b") {
		t.Errorf("a terminal could obey %q", r.out)
	}
	b.cli("claims", "jobs", "--dead", "--limit", "2").want(t, 0, "more rows are dead")
	got := decoded[deadList](t, b.cli("claims", "jobs", "--dead", "--json").want(t, 0))
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
	b.cli("claims", "jobs").want(t, 0, "6 ready, 0 claimed, 0 retrying, 0 dead, 1 done")
	b.cli("claims", "jobs", "--discard", `"done"`).want(t, exitFailed)
	for i := range 3 {
		b.insert("jobs", bsontest.D("_id", 100+i, "claim", dead))
	}
	b.cli("claims", "jobs", "--retry", "100", "--retry", "5").want(t, exitFailed, "1 of 2 rows")
	b.cli("claims", "jobs", "--retry", "all").want(t, 0, "2 dead rows")
	b.cli("claims", "jobs", "--discard", "all").want(t, 0, "0 dead rows")
	b.cli("claims", "jobs", "--dead").want(t, 0, "no row of")
}

// The command "distlock claims --repair" makes a claimed row ready again if the row names no slot.
// It changes no other row. The command "distlock claims pause" stops a queue, and "distlock claims
// resume" continues the queue.
func TestClaims_RepairAndPause(t *testing.T) {
	b := newBase(t)
	b.insert("jobs", bsontest.D("_id", 1, "claim", bsontest.D("state", "claimed")))
	b.insert("jobs", bsontest.D("_id", 2, "claim", bsontest.D("state", "claimed", "slot", "claim:s",
		"session", bson.NewObjectID(), "batch", bson.NewObjectID())))
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

// The command "distlock loops" prints the latest run, the next run and the failures of each loop,
// and why a loop is stopped. If a document of one loop is malformed, the command still lists every
// loop.
func TestLoops_RecordsAndSettings_AreShown(t *testing.T) {
	b := newBase(t)
	b.cli("loops").want(t, exitFailed, "nothing was ever locked there")
	b.hold("job", 1)
	b.cli("loops").want(t, 0, "no loop or schedule ever ran")
	begun := bson.NewDateTimeFromTime(time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC))
	next := bson.NewDateTimeFromTime(time.Date(2026, 5, 6, 7, 9, 9, 0, time.UTC))
	record := func(name string, more ...bson.E) bson.D {
		return append(bsontest.D("_id", name, "kind", "loop", "fence", int64(7), "rev", int64(3),
			"process", "host:1:1:a", "seen", begun, "state", "done", "begun", begun, "ended", begun,
			"next", next, "rounds", int64(12)), more...)
	}
	b.insert(singleton.RecordsCollection, record("cleanup"))
	b.insert(singleton.RecordsCollection, record("report", bson.E{Key: "failures", Value: int64(4)},
		bson.E{Key: "lastError", Value: "disk \x1b[31mfull"}))
	b.insert(singleton.RecordsCollection, bsontest.D("_id", "torn", "fence", "seven"))
	b.insert(singleton.SettingsCollection, bsontest.D("_id", "cleanup", "stopped", true))
	b.insert(singleton.SettingsCollection, bsontest.D("_id", "report", "activeWindow", 5))
	r := b.cli("loops", "--wide").want(t, 0, "cleanup", "stopped", "2026-05-06T07:08:09Z",
		"2026-05-06T07:09:09Z", "host:1:1:a", "report", "activeWindow", "torn", "fence")
	if strings.Contains(r.out, "\x1b") {
		t.Errorf("a terminal could obey %q", r.out)
	}
	got := decoded[loopList](t, b.cli("loops", "--json").want(t, 0))
	if len(got.Loops) != 3 || got.Loops[2].Stopped != "stopped" || got.Loops[0].Failures != 4 ||
		got.Loops[0].Malformed == "" || got.Loops[1].Malformed == "" || got.Loops[2].Malformed != "" {
		t.Errorf("%+v", got.Loops)
	}
	var narrow strings.Builder
	got.print(&narrow, layout(60))
	checkWidth(t, narrow.String(), 60)
	for _, title := range []string{"PAUSE", "FAILED"} { // rather than the beginning of the round
		if !strings.Contains(narrow.String(), title) {
			t.Errorf("no column %s on a narrow terminal:\n%s", title, narrow.String())
		}
	}
	if !strings.Contains(narrow.String(), "\nreport: disk \\u001b[31mfull\n") {
		t.Errorf("no error on a narrow terminal:\n%s", narrow.String())
	}
}

// The command "distlock loops NAME" lists the latest rounds of a loop, newest first.
func TestLoops_LatestRounds_AreShown(t *testing.T) {
	b := newBase(t)
	at := func(minute int) bson.DateTime {
		return bson.NewDateTimeFromTime(time.Date(2026, 5, 6, 7, minute, 0, 0, time.UTC))
	}
	run := func(state string, minute int, more ...bson.E) bson.D {
		return append(bsontest.D("state", state, "process", "host:1:1:a", "fence", int64(7),
			"begun", at(minute)), more...)
	}
	b.insert(singleton.RecordsCollection, bsontest.D("_id", "report", "kind", "loop",
		"fence", int64(7), "rev", int64(3), "seen", at(0), "state", "running", "runs", bson.A{
			run("failed", 1, bson.E{Key: "ended", Value: at(2)}, bson.E{Key: "tookMicros",
				Value: int64(60_000_000)}, bson.E{Key: "error", Value: "disk \x1b[31mfull"}),
			run("interrupted", 3), run("running", 4)}))
	r := b.cli("loops", "report", "--wide").want(t, 0, "2026-05-06T07:01:00Z", "1m0s", "failed",
		"full", "interrupted", "running", "host:1:1:a")
	if strings.Contains(r.out, "\x1b") ||
		strings.Index(r.out, "running") > strings.Index(r.out, "failed") {
		t.Errorf("a terminal could obey it, or the order is wrong: %q", r.out)
	}
	got := decoded[roundList](t, b.cli("loops", "report", "--json").want(t, 0))
	if len(got.Runs) != 3 || got.Runs[2].TookMS == nil || *got.Runs[2].TookMS != 60_000 ||
		got.Runs[0].Ended != nil || got.Runs[0].TookMS != nil || got.Kind != "loop" {
		t.Errorf("%+v", got)
	}
	b.cli("loops").want(t, 0, "report", "running")
	b.cli("loops", "other").want(t, exitFailed, "other", "ever ran")
	b.cli("loops", "a", "b").want(t, exitUsage, "one name")
}

// The command "distlock claims" counts each row once, by its state.
func TestClaims_RowsOfEachState_AreCounted(t *testing.T) {
	b := newBase(t)
	for i, state := range []string{"", "ready", "claimed", "claimed", "retrying", "dead", "done",
		"done", "done"} {
		doc := bsontest.D("_id", i)
		if state != "" {
			doc = append(doc, bson.E{Key: "claim", Value: bsontest.D("state", state, "slot", "claim:x:0",
				"session", bson.NewObjectID(), "batch", bson.NewObjectID(), "notBefore",
				bson.DateTime(0))})
		}
		b.insert("jobs", doc)
	}
	b.insert(catalog.LocksCollection, bsontest.D("_id", 42)) // malformed
	const all = "2 ready, 2 claimed, 1 retrying, 1 dead, 3 done"
	b.cli("claims", "jobs").want(t, 0, all)
	b.cli("claims", "jobs", "--json").want(t, 0, `"claimed": 2`, `"dead": 1`)
}

// The command "distlock claims" counts a row that is not due as "later". The flag --due or a
// worker's lock names the field with the due time. The command "distlock claims" also reports each
// row that can never be claimed, with the reason.
func TestClaims_RowsNotDue_CountAsLater(t *testing.T) {
	b := newBase(t)
	at := func(d time.Duration) bson.DateTime { return bson.NewDateTimeFromTime(time.Now().Add(d)) }
	for i, due := range []any{at(-time.Hour), at(time.Hour), at(2 * time.Hour), nil, "soon"} {
		b.insert("new:mails", bsontest.D("_id", i, "at", due, "to", bson.A{"x"}))
	}
	b.insert("new:mails", bsontest.D("_id", 9, "claim", bsontest.D("state", "odd")))
	b.cli("claims", "new:mails").want(t, 0, "5 ready, 0 claimed")
	const parted = `1 ready, 3 later (by field "at"), 0 claimed`
	b.cli("claims", "new:mails", "--due", "at").want(t, 0, parted, "odd row 9", "odd row 4",
		"2 rows can never be claimed")
	name := "claim:" + b.name + ".new:mails:queue:0"
	b.held(name, 7)
	b.update(catalog.LocksCollection, name, "$set",
		bsontest.D("why", `claims rows, due by "at", in chains by "to"`))
	b.cli("claims", "new:mails").want(t, 0, `odd row 0: field "to" is a list`)
	b.cli("claims", "new:mails", "--json").want(t, 0, `"oddRows": 6`, `"due": "at"`, `"odd": [`)
	b.cli("claims", "new:mails", "--due", "$at").want(t, exitUsage, "--due")
}

// If the collection does not exist, "distlock claims" fails and lists the queues. If no row has the
// field that --field names, "distlock claims" prints the name of the field and does not count the
// rows as ready.
func TestClaims_MisspeltCollectionOrField_NoFigures(t *testing.T) {
	b := newBase(t)
	b.held("claim:"+b.name+".mails:queue:0000", 7)
	b.insert("mails", bsontest.D("_id", 1))
	fresh := `1 rows of "` + b.name +
		`.mails" have no field "claim": they are ready if their queue uses it`
	b.cli("claims", "mails").want(t, 0, fresh)
	b.insert("mails", bsontest.D("_id", 2, "claim", bsontest.D("state", "ready")))
	b.cli("claims", "mails").want(t, 0, "2 ready, 0 claimed")
	for _, more := range [][]string{nil, {"--json"}, {"--dead"}, {"--retry", "all"},
		{"--discard", "all"}} {
		r := b.cli(append([]string{"claims", "mailz"}, more...)...).
			want(t, exitFailed, `there is no collection "mailz" in database`, `"distlock claims" lists`)
		if r.out != "" {
			t.Errorf("%q: it shows %q", more, r.out)
		}
	}
	r := b.cli("claims", "mails", "--field", "nope").want(t, 0, `2 rows of`, `have no field "nope"`)
	if strings.Contains(r.out, "2 ready") {
		t.Errorf("it says %q", r.out)
	}
	for _, more := range [][]string{{}, {"--dead"}, {"--retry", "all"}, {"--discard", "all"}} {
		line := append([]string{"claims", "mails", "--field", "nope"}, more...)
		b.cli(line...).want(t, 0, `field "nope"`)
		b.cli(append(line, "--json")...).want(t, 0, `"noField": "nope"`)
	}
}

// If the latest slot of a schedule is in the future, "distlock loops --forget-future" repairs the
// schedule. If the latest slot is in the past, the command changes nothing.
func TestLoops_ForgetFuture_RepairsTheRecord(t *testing.T) {
	b := newBase(t)
	for name, slot := range map[string]time.Time{"ahead": time.Now().Add(30 * 24 * time.Hour),
		"past": time.Now().Add(-time.Hour)} {
		b.insert(singleton.RecordsCollection, bsontest.D("_id", name, "kind", "slots", "fence", int64(3), "rev", int64(8),
			"seen", bson.NewDateTimeFromTime(time.Now()), "slot", bson.NewDateTimeFromTime(slot)))
	}
	b.cli("loops", "--forget-future").want(t, exitUsage, "NAME is missing")
	b.cli("loops", "other", "--forget-future").want(t, exitFailed, "other")
	b.cli("loops", "past", "--forget-future").want(t, 0, "nothing was changed")
	b.cli("loops", "ahead", "--forget-future").want(t, 0, "count from now")
	b.cli("loops", "ahead", "--forget-future", "--json").want(t, 0, `"repaired": false`)
}

// Without an argument, "distlock claims" lists all queues with the counts of their rows. If there
// is no queue, the error names the missing argument.
func TestClaims_NoCollection_ListsTheQueues(t *testing.T) {
	b := newBase(t)
	b.cli("claims").want(t, exitFailed, "nothing was ever locked there")
	defer func() { // a printed name is accepted, for reading and for changes
		b.cli("claims", b.name+".mail").want(t, 0, "1 ready, 0 claimed", "2 dead", b.name+".mail")
		b.cli("claims", b.name+".mail", "--dead", "--json").want(t, 0, `"collection": "mail"`)
		b.cli("claims", b.name+".mail", "--retry", "all").want(t, 0, "2 dead rows")
		b.cli("claims", b.name+".mai").want(t, exitFailed, "there is no collection")
	}()
	b.hold("job", 1)
	b.cli("claims").want(t, 0, "no worker of a queue", "COLLECTION")
	for _, lock := range []string{":claim:s1", ":claim:s2", ":claim:refused"} {
		b.held("claim:"+b.name+".mail"+lock, 1)
	}
	b.held("claim:"+b.name+".empty:claim:s1", 1)
	b.held("claim:odd", 1)
	for _, state := range []string{"dead", "dead", "done"} {
		b.insert("mail", bsontest.D("claim", bsontest.D("state", state)))
	}
	b.insert("mail", bson.D{})
	b.cli("claims").want(t, 0, "QUEUE", b.name+".mail", b.name+".empty",
		"1      0      0        0         2     1\n")
	b.cli("claims", "--json").want(t, 0, `"collection": "mail"`, `"dead": 2`, `"more": false`)
}
