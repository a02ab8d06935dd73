package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

// With --wide, or without a terminal and COLUMNS, the width of a listing has no bound.
func TestLayoutOf_WideAndColumns(t *testing.T) {
	for columns, want := range map[string]layout{"40": 40, "": 0, "0": 0, "x": 0} {
		t.Setenv("COLUMNS", columns)
		if got := layoutOf(&bytes.Buffer{}, false); got != want {
			t.Errorf("COLUMNS=%s: %d, want %d", columns, got, want)
		}
		if got := layoutOf(&bytes.Buffer{}, true); got != 0 {
			t.Errorf("COLUMNS=%s --wide: %d, want no bound", columns, got)
		}
	}
}

// On a terminal the summary counts the malformed documents. If two process ids have the same short
// form, both are printed in full.
func TestListings_Terminal_SummaryAndAlikeProcesses(t *testing.T) {
	b := newBase(t)
	fill(b)
	var out strings.Builder
	collected(b, (&locks{filter: filter{order: "trouble"}}).collect).print(&out, layout(120))
	if !strings.HasSuffix(out.String(), " waiters, 3 malformed\n") {
		t.Errorf("the summary is\n%s", out.String())
	}
	for _, id := range []string{"twin:9:1:aa", "twin:9:2:bb"} {
		b.ping(id, time.Second, bson.E{Key: "seq", Value: int64(1)})
	}
	out.Reset()
	collected(b, new(processes).collect).print(&out, layout(120))
	for _, id := range []string{"twin:9:1:aa", "twin:9:2:bb"} {
		if !strings.Contains(out.String(), id) {
			t.Errorf("the process %s is cut:\n%s", id, out.String())
		}
	}
}

// A list of names has at most fifty names, and the number of the others.
func TestListed_ManyNames_OthersAreCounted(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 53 {
		names = append(names, fmt.Sprint("job-", i))
	}
	if text := listed(names); !strings.HasSuffix(text, ", job-49 and 3 more") &&
		!strings.HasSuffix(text, ", job-49, and 3 more") {
		t.Errorf("listed %s", text)
	}
	if text := listed(nil); text != "-" {
		t.Errorf("listed %q", text)
	}
}

// storeAway returns a store that can read the locks. Its client reaches no server.
func (b *base) storeAway() (st *store, restore func()) {
	b.t.Helper()
	c := connection{uri: b.uri, database: b.name}
	st = assert.Value(c.open(b.t.Context(), 0, logging{}))(b.t)
	own := st.client
	st.client = assert.Value(mongo.Connect(options.Client().ApplyURI(
		"mongodb://user:hunter2@127.0.0.1:1/?serverSelectionTimeoutMS=50")))(b.t)
	return st, func() {
		_ = st.client.Disconnect(context.Background())
		st.client = own
		st.close()
	}
}

// If the history cannot be read, the details of a lock say so without a password, and show the
// rest.
func TestLocks_HistoryUnreadable_IsSaid(t *testing.T) {
	b := newBase(t)
	fill(b)
	st, restore := b.storeAway()
	defer restore()
	d := assert.Value((&locks{name: "alive"}).details(t.Context(), st))(t)
	var out strings.Builder
	d.print(&out, 0)
	for _, part := range []string{"lock \"alive\" is held", "the history cannot be read: "} {
		if d.NoHistory == "" || !strings.Contains(out.String(), part) {
			t.Errorf("it lacks %q:\n%s", part, out.String())
		}
	}
	if strings.Contains(out.String()+d.NoHistory, "hunter2") {
		t.Errorf("it has the password:\n%s", out.String())
	}
}

// "distlock claims" counts the rows of each queue by its recorded fields, with the queues with dead
// rows first. A queue whose collection does not exist yet has no rows.
func TestClaims_Queues_DueAndOrder(t *testing.T) {
	b := newBase(t)
	at := func(in time.Duration) bson.D {
		return bsontest.D("at", bson.NewDateTimeFromTime(clock.System().Now().Wall.Add(in)))
	}
	b.insert(catalog.LocksCollection, bsontest.D("_id", "claim:"+b.name+".a-later:queue:1", "state", int32(0),
		"why", `claims rows, due by "at"`))
	b.held("claim:"+b.name+".b-retrying:queue:1", 1)
	b.held("claim:"+b.name+".c-dead:queue:1", 1)
	b.held("claim:"+b.name+".d-none:queue:1", 1)
	b.insert("a-later", at(time.Hour))
	b.insert("a-later", at(-time.Hour))
	b.insert("b-retrying", bsontest.D("claim", bsontest.D("state", "retrying",
		"attempts", int64(1), "notBefore", at(time.Hour)[0].Value)))
	b.insert("c-dead", bsontest.D("claim", bsontest.D("state", "dead")))
	b.heldBy("claim:"+b.name+".e-field:queue/mine:1", otherProcess, 1)
	b.insert("e-field", bsontest.D("mine", bsontest.D("state", "done")))
	b.insert(catalog.LocksCollection, bsontest.D("_id", "claim:"+b.name+".f-chains:queue:1", "state", int32(0),
		"why", `claims rows, in chains by "to"`))
	b.insert("f-chains", bsontest.D("to", bson.A{"never claimed"}))
	got := decoded[queueList](t, b.cli("claims", "--json").want(t, 0))
	var all []string
	for _, q := range got.Queues {
		all = append(all, fmt.Sprintf("%s %d %d %d %d", q.Collection, q.Ready, q.Later, q.Retrying, q.Dead))
	}
	assert.Slices(t, all, []string{"c-dead 0 0 0 1", "b-retrying 0 0 1 0", "a-later 1 1 0 0", "d-none 0 0 0 0",
		"e-field 0 0 0 0", "f-chains 0 0 0 0"}, "the queues are %q, want %q")
	b.cli("claims").want(t, 0, b.name+".e-field --field mine")
	b.cli("claims", "d-none").want(t, 0, "0 ready, 0 claimed")
}

// A queue that cannot be counted hides no other queue.
func TestClaims_QueueRefused_OthersAreCounted(t *testing.T) {
	b := newBase(t)
	for _, name := range []string{"a b.c:queue", "app.odd:queue/a.b", b.name + ".mail:queue"} {
		b.insert(catalog.LocksCollection, bsontest.D("_id", "claim:"+name+":1", "state", int32(0)))
	}
	b.insert("mail", bson.D{})
	r := b.cli("claims", "--json").want(t, exitFailed, `rows of "a b.c"`, `rows of "app.odd"`)
	got := decoded[queueList](t, r)
	if len(got.Queues) != 1 || got.Queues[0].Ready != 1 {
		t.Errorf("the queues are %+v", got.Queues)
	}
}

// If the server does not answer, DATABASE.COLLECTION is not taken for a collection of the database
// of the locks.
func TestClaims_CollectionsUnreadable_IsAnError(t *testing.T) {
	b := newBase(t)
	b.held("claim:"+b.name+".jobs:queue:1", 1)
	st, restore := b.storeAway()
	defer restore()
	rows, err := (&claims{collection: b.name + ".jobs"}).rows(t.Context(), st)
	if err == nil {
		t.Errorf("the rows are in %s.%s", rows.Database().Name(), rows.Name())
	}
}

// "distlock claims" counts the rows of at most a hundred queues, and says that others exist.
func TestClaims_ManyQueues_SomeAreCounted(t *testing.T) {
	b := newBase(t)
	for i := range 101 {
		b.insert(catalog.LocksCollection, bsontest.D("_id", fmt.Sprintf("claim:%s.q%03d:queue:1", b.name, i),
			"state", int32(0)))
	}
	b.cli("claims").want(t, 0, "more queues exist; only the first 100 are counted")
}

// "distlock doctor" counts the dead processes. It warns of old pings that no process removes.
func TestDoctor_ManyDeadProcesses_AreCounted(t *testing.T) {
	b := newBase(t)
	for i := range 7 {
		id := fmt.Sprintf("dead:%d:1:a", i)
		b.ping(id, time.Hour, bson.E{Key: "seq", Value: int64(1)})
		b.heldBy(fmt.Sprint("job-", i), id, 1)
		b.ping(fmt.Sprintf("old:%d:1:a", i), 5*24*time.Hour, bson.E{Key: "seq", Value: int64(1)})
	}
	prepare(t, b)
	b.cli("doctor", "--rounds", "1", "--contenders", "2").want(t, exitWarned,
		"(7, see distlock ps) are silent", "dead:6:1:a",
		"7 pings of processes that hold nothing are older than 4d")
}
