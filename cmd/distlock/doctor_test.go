package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/internal/test/mongodtest"
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

// The command "distlock doctor" warns of a dead process with locks, even if no contender has
// declared the process dead. The warning changes the exit code. A live process causes no warning.
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
			cli(t, args...).want(t, exitWarned, "(1, see distlock ps) are silent", otherProcess, "verdict: fit")
			r := cli(t, append(args, "--json")...).report(t)
			if len(r.Warnings) != 1 {
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
		bsontest.D("_id", "claim:"+b.name+".jobs:mail:3", "state", int32(0)))
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
		bsontest.D("_id", "claim:"+b.name+".jobs:mail:3", "state", int32(0)))
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
	b.insert(catalog.LocksCollection, bsontest.D("_id", "claim:"+b.name+".jobs:queue/mine:3", "state", int32(0),
		"why", `claims rows, due by "at"`))
	if got = missing(t, b); len(got) != 2 || !strings.Contains(got[0], "mine.state") ||
		!strings.HasSuffix(got[1], `createIndex({"mine.state":1,"at":1})`) {
		t.Errorf("the recorded field and due time: got %q", got)
	}
}

// prepare creates the indexes of locks and pings, as a Manager does.
func prepare(t *testing.T, b *base) {
	t.Helper()
	store := assert.Value(mongocatalog.New(b.db.Client(), mongocatalog.Options{Database: b.name}))(t)
	assert.Value(store.Prepare(t.Context()))(t)
}

// guarded starts a server that requires passwords, with a user named root. It skips the test if
// MongoDB is not installed. The returned function maps a user to a connection string.
func guarded(t *testing.T, opts mongodtest.Options) (d *mongodtest.Deployment, root *mongo.Client,
	as func(user string) string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short leaves out what starts a mongod")
	}
	p, err := mongodtest.Find(t.Context())
	if err != nil {
		t.Skip(err)
	}
	if opts.TLS != nil && !p.TLS {
		t.Skipf("mongod %s was built without TLS", p.Version)
	}
	opts.Auth = true
	d = assert.Value(mongodtest.Start(t.Context(), p, opts))(t)
	t.Cleanup(func() { assert.NoErr(t, d.Close()) })
	as = func(user string) string {
		return strings.Replace(d.URI(), "mongodb://", "mongodb://"+user+":"+secretEscaped+"@", 1)
	}
	create := bsontest.D("createUser", "root", "pwd", secret,
		"roles", bson.A{bsontest.D("role", "root", "db", "admin")})
	asAdmin(t, connected(t, d.URI()), create) // the first user needs no password
	return d, connected(t, as("root")), as
}

// A password with characters that a connection string must escape.
const (
	secret        = "n0b0dy/may$see"
	secretEscaped = "n0b0dy%2Fmay%24see"
)

func connected(t *testing.T, uri string) *mongo.Client { return newBaseOf(t, uri).db.Client() }

func asAdmin(t *testing.T, client *mongo.Client, command any) {
	t.Helper()
	assert.Must(t, client.Database("admin").RunCommand(t.Context(), command).Err())
}

// A real server accepts the role that "distlock doctor --role" prints. With that role, "distlock
// doctor" finds no missing privilege and changes no data. If one action is removed from the role,
// the command names that action.
func TestDoctor_RealServer_ChecksThePrintedRole(t *testing.T) {
	_, root, as := guarded(t, mongodtest.Options{ReplicaSet: 1})
	out := cli(t, "doctor", "--role", "--json", "--features",
		"locks,lines,history,listings,loops").want(t, 0).out
	var command bson.D
	assert.Must(t, bson.UnmarshalExtJSON([]byte(out), false, &command))
	asAdmin(t, root, command)
	asAdmin(t, root, bsontest.D("createUser", "least", "pwd", secret,
		"roles", bson.A{bsontest.D("role", roleName, "db", "admin")}))
	b := newBaseOf(t, as("root"))
	b.name, b.db = defaultDatabase, root.Database(defaultDatabase)
	examine := func() report {
		t.Helper()
		r := cli(t, "doctor", "--uri", as("least"), "--json", "--features",
			"locks,lines,history,listings,loops")
		if strings.Contains(r.out+r.errOut, "n0b0dy") {
			t.Errorf("the password is shown:\n%s\n%s", r.out, r.errOut)
		}
		return r.report(t)
	}
	r := examine()
	if len(r.MissingPrivileges) > 0 || r.Race != nil || !r.Fit || len(r.Members) != 1 ||
		r.Members[0].State != "primary" {
		t.Errorf("with the whole role: %+v", r)
	}
	if names, err := b.db.ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) > 0 {
		t.Errorf("trying has made %q (%v)", names, err)
	}
	fill(b)
	assert.Value(b.db.Collection(catalog.PingsCollection).Indexes().CreateOne(t.Context(),
		mongo.IndexModel{Keys: bsontest.D("x", 1), Options: options.Index().SetExpireAfterSeconds(0)}))(t)
	before := b.all()
	if text := fmt.Sprint(examine().Warnings); !strings.Contains(text, `index "x_1" on distlock.`+
		"lockpings deletes documents by their age") {
		t.Errorf("no warning of an index that deletes documents: %s", text)
	}
	if after := b.all(); before != after {
		t.Errorf("trying has changed\n%s\ninto\n%s", before, after)
	}
	for i, p := range privilegesOf(t, command) {
		for j := range p.Actions {
			less := privilegesOf(t, command)
			action := less[i].Actions[j]
			if less[i].Actions = slices.Delete(less[i].Actions, j, j+1); len(less[i].Actions) == 0 {
				less = slices.Delete(less, i, i+1)
			}
			asAdmin(t, root, bsontest.D("updateRole", roleName, "privileges", less))
			got := examine().MissingPrivileges
			if len(got) != 1 || got[0].Collection != defaultDatabase+"."+p.Resource.Collection ||
				fmt.Sprint(got[0].Actions) != "["+action+"]" {
				t.Errorf("without %s on %s: %+v is missing", action, p.Resource.Collection, got)
			}
		}
	}
}

type privilege struct {
	Resource struct {
		DB         string `bson:"db"`
		Collection string `bson:"collection"`
	} `bson:"resource"`
	Actions []string `bson:"actions"`
}

func privilegesOf(t *testing.T, command bson.D) []privilege {
	t.Helper()
	raw := assert.Value(bson.Marshal(command))(t)
	var doc struct {
		Privileges []privilege `bson:"privileges"`
	}
	assert.Must(t, bson.Unmarshal(raw, &doc))
	return doc.Privileges
}
