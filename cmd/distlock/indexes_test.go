package main

import (
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

// missing returns the commands that would create the missing indexes, as "distlock doctor" prints
// them.
func missing(t *testing.T, b *base, more ...string) []string {
	t.Helper()
	return examined(t, b, more...).MissingIndexes
}

// report decodes the JSON report of "distlock doctor". It checks that the exit code fits the
// warnings.
func (r result) report(t *testing.T) (got report) {
	t.Helper()
	got = decoded[report](t, r)
	code := 0
	if len(got.Warnings) > 0 {
		code = exitWarned
	}
	r.want(t, code)
	return got
}

func examined(t *testing.T, b *base, more ...string) report {
	t.Helper()
	got := cli(t, append(b.flags("doctor", "--json", "--rounds", "1", "--contenders", "2"),
		more...)...).report(t)
	all := strings.Join(got.Warnings, "\n")
	for _, command := range got.MissingIndexes {
		if !strings.Contains(all, command) {
			t.Errorf("no warning has %s:\n%s", command, all)
		}
	}
	return got
}

// With --create-indexes, "distlock doctor" creates and reports the missing indexes of the locks and
// the queues. The next run finds no missing index. A database that was never used stays empty.
func TestDoctor_CreateIndexes_CreatesWhatIsMissing(t *testing.T) {
	b := newBase(t)
	if got := examined(t, b, "--create-indexes"); len(got.CreatedIndexes)+len(got.MissingIndexes) > 0 {
		t.Errorf("a database without locks: %+v", got)
	}
	if names, err := b.db.ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) > 0 {
		t.Errorf("doctor has made %q (%v)", names, err)
	}
	b.hold("job", 3)
	b.insert(catalog.LocksCollection,
		bsontest.D("_id", "claim:"+b.name+".jobs:mail:queue:3", "state", int32(0)))
	b.insert("jobs", bsontest.D("_id", 1))
	want := missing(t, b)
	for _, index := range []string{`"locks").createIndex({"process": 1}`,
		`"lockpings").createIndex({"ping": 1}`} {
		if !strings.Contains(strings.Join(want, "\n"), index) {
			t.Errorf("%s is not reported: %q", index, want)
		}
	}
	got := examined(t, b, "--create-indexes")
	if len(want) < 5 || !slices.Equal(got.CreatedIndexes, want) || len(got.MissingIndexes) > 0 {
		t.Errorf("missing were\n%s\ncreated\n%s\nstill missing %q", strings.Join(want, "\n"),
			strings.Join(got.CreatedIndexes, "\n"), got.MissingIndexes)
	}
	if got := examined(t, b, "--create-indexes"); len(got.CreatedIndexes)+len(got.MissingIndexes) > 0 {
		t.Errorf("the second time: %+v", got)
	}
	r := b.cli("doctor", "--rounds", "1", "--contenders", "2").want(t, exitWarned)
	if strings.Contains(r.out, "indexes created") || strings.Contains(r.out, "is missing") {
		t.Errorf("the report says\n%s", r.out)
	}
}

// If a queue has no index, "distlock doctor" warns and prints the command that creates the index.
// Without the index, each claim would read every row.
func TestDoctor_QueueWithoutIndexes_NamesTheCommands(t *testing.T) {
	b := newBase(t)
	b.insert(catalog.LocksCollection,
		bsontest.D("_id", "claim:"+b.name+".jobs:mail:queue:3", "state", int32(0)))
	b.insert(catalog.LocksCollection,
		bsontest.D("_id", "claim:elsewhere.jobs:queue:3", "state", int32(0)))
	b.insert("jobs", bsontest.D("_id", 1))
	prepare(t, b)
	want := `db.getSiblingDB("` + b.name +
		`").getCollection("jobs").createIndex({"claim.state":1,"claim.notBefore":1})`
	if got := missing(t, b); len(got) != 1 || got[0] != want { // the embedded server has no partial indexes
		t.Errorf("want\n%s\ngot\n%s", want, strings.Join(got, "\n"))
	}
	index := func(keys ...bson.E) {
		t.Helper()
		if _, err := b.db.Collection("jobs").Indexes().CreateOne(t.Context(),
			mongo.IndexModel{Keys: bson.D(keys)}); err != nil {
			t.Fatal(err)
		}
	}
	index(bson.E{Key: "claim.state", Value: 1}, bson.E{Key: "claim.notBefore", Value: 1})
	if got := missing(t, b); len(got) > 0 {
		t.Errorf("nothing is missing, but %q is reported", got)
	}
	got := missing(t, b, "--queue", "jobs", "--due", "at")
	if len(got) != 1 || !strings.HasSuffix(got[0], `createIndex({"claim.state":1,"at":1})`) {
		t.Errorf("the index of the order: got %q", got)
	}
	if got = missing(t, b, "--queue", "jobs", "--field", "mine"); len(got) != 1 ||
		!strings.Contains(got[0], "mine.state") {
		t.Errorf("another field: got %q", got)
	}
}

// prepare creates the indexes of locks and pings, as a Manager does.
func prepare(t *testing.T, b *base) {
	t.Helper()
	store := assert.Value(mongocatalog.New(b.db.Client(), mongocatalog.Options{Database: b.name}))(t)
	assert.Value(store.Prepare(t.Context()))(t)
}
