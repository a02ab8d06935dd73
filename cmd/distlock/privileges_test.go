package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/clock"
	"mongodlm/internal/role"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
	"mongodlm/singleton"
)

// An actionLog records the privileges that a client's commands need, by collection.
type actionLog struct {
	mu   sync.Mutex // guards used
	used map[string]bool
}

func (p *actionLog) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		collection, _ := e.Command.Lookup(e.CommandName).StringValueOK()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, action := range actionsOf(e.CommandName, e.Command) {
			p.used[collection+" "+action] = true
		}
	}}
}

func actionsOf(name string, command bson.Raw) []string {
	upserts := func(doc bson.Raw) []string {
		if is, _ := doc.Lookup("upsert").BooleanOK(); is {
			return []string{"update", "insert"}
		}
		return []string{"update"}
	}
	switch name {
	case "find", "count", "distinct":
		return []string{"find"}
	case "aggregate":
		if strings.Contains(command.Lookup("pipeline").String(), "$changeStream") {
			return []string{"find", "changeStream"}
		}
		return []string{"find"}
	case "insert":
		return []string{"insert"}
	case "update":
		first, _ := command.Lookup("updates", "0").DocumentOK()
		return upserts(first)
	case "findAndModify":
		return append(upserts(command), "find")
	case "delete":
		return []string{"remove"}
	case "createIndexes":
		return []string{"createIndex"}
	case "listIndexes":
		return []string{"listIndexes"}
	case "hello", "isMaster", "buildInfo", "ping", "endSessions", "getMore", "killCursors",
		"commitTransaction",
		"abortTransaction":
		return nil // every user may send these
	case "listCollections":
		return nil // without the privilege the listing is empty; see emptyText
	}
	return []string{"the unknown action of " + name}
}

// recorded returns a client and the log of the privileges that its commands need.
func (b *base) recorded() (*mongo.Client, *actionLog) {
	b.t.Helper()
	p := &actionLog{used: map[string]bool{}}
	opts := options.Client().ApplyURI(b.uri).SetMonitor(p.monitor())
	client := assert.Value(mongo.Connect(opts))(b.t)
	b.t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client, p
}

// The role of each feature contains exactly the privileges that the commands of the feature need.
func TestRole_IsTheLeast(t *testing.T) {
	t.Parallel()
	for feature, c := range map[role.Feature]struct {
		use func(*testing.T, *base, *mongo.Client)
		// The other features that this feature needs.
		with []role.Feature
		// A privilege that the commands of the integration tests need. On the embedded server, no command
		// needs this privilege.
		elsewhere string
	}{
		role.Locks:    {useLocks, nil, ""},
		role.Lines:    {useQueues, []role.Feature{role.Locks}, "locks changeStream"},
		role.History:  {useHistory, nil, ""},
		role.Listings: {useListings, nil, ""},
		// A break also writes an entry into the history.
		role.Breaking: {useBreaking, []role.Feature{role.History}, ""},
		role.Pruning:  {usePruning, nil, ""},
		role.Loops:    {useLoops, []role.Feature{role.Locks}, ""},
		role.Claims:   {useClaims, []role.Feature{role.Locks}, "rows changeStream"},
	} {
		t.Run(string(feature), func(t *testing.T) {
			b := newBase(t)
			client, recorded := b.recorded()
			c.use(t, b, client)
			recorded.mu.Lock()
			defer recorded.mu.Unlock()
			allowed := allowing(append(c.with, feature)...)
			for one := range recorded.used {
				if !allowed[one] {
					t.Errorf("%s was sent, and the role does not allow it", one)
				}
			}
			for _, one := range slices.Sorted(maps.Keys(allowing(feature))) {
				if !recorded.used[one] && one != c.elsewhere {
					t.Errorf("%s is allowed, and nothing has needed it", one)
				}
			}
		})
	}
}

func allowing(features ...role.Feature) map[string]bool {
	allowed := map[string]bool{}
	for _, p := range role.Of("rows", features...) {
		for _, action := range p.Actions {
			allowed[p.Collection+" "+action] = true
		}
	}
	return allowed
}

func managerOn(t *testing.T, b *base, client *mongo.Client) *distlock.Manager {
	t.Helper()
	return assert.Value(distlock.New(t.Context(),
		distlock.Config{Client: client, PingClient: client, Database: b.name}))(t)
}

func storeOn(t *testing.T, b *base, client *mongo.Client) *store {
	t.Helper()
	st := &store{client: client, database: b.name,
		history: assert.Value(history.New(client, b.name, history.Options{}))(t)}
	st.Inspector = assert.Value(st.inspector(t.Context(), "x"))(t)
	return st
}

// useLocks acquires, renews and releases locks, creates indexes, prunes old pings, and closes the
// Manager.
func useLocks(t *testing.T, b *base, client *mongo.Client) {
	m := managerOn(t, b, client)
	for _, opt := range []distlock.Option{distlock.Why("x"), distlock.Shared(), distlock.Permits(2),
		distlock.Lease(time.Hour)} {
		name := "job " + bson.NewObjectID().Hex()
		guard := assert.Value(m.Lock(name).TryLock(t.Context(), opt))(t)
		_, _ = m.Lock(name).TryLock(t.Context()) // refused, because the lock is held
		assert.NoErr(t, guard.Verify(t.Context()))
		assert.NoErr(t, guard.Release())
	}
	assert.NoErr(t, m.Close(t.Context()))
	store := assert.Value(mongocatalog.New(client, mongocatalog.Options{Database: b.name}))(t)
	assert.NoErr(t, assert.Err(store.Prepare(t.Context()))) // the Manager does this in the background
	b.ping(otherProcess, 100*time.Hour, bson.E{Key: "seq", Value: int64(1)})
	old := assert.Value(store.OldPings(t.Context(), time.Now().Add(-time.Hour)))(t)
	if n, err := store.Prune(t.Context(), old); err != nil || n != 1 {
		t.Errorf("pruned %d, %v", n, err)
	}
}

func useQueues(t *testing.T, b *base, client *mongo.Client) {
	useLocks(t, b, client)
	m := managerOn(t, b, client)
	guard := assert.Value(m.Lock("job").TryLock(t.Context()))(t)
	waited := make(chan error, 1)
	go func() { // ends with the lock, which is released below
		next, err := m.Lock("job").Lock(t.Context())
		if err == nil {
			err = next.Release()
		}
		waited <- err
	}()
	eventually(t, "a process is queued", func() bool { return len(b.lock("job").Waiters) > 0 })
	assert.NoErr(t, guard.Release())
	assert.NoErr(t, <-waited)
	assert.NoErr(t, m.Close(t.Context()))
}

func useHistory(t *testing.T, b *base, client *mongo.Client) {
	st := storeOn(t, b, client)
	st.history.Observe(distlock.Event{Kind: distlock.EventBroken, At: time.Now(), Name: "x"})
	assert.NoErr(t, st.history.Close(t.Context()))
	entries, _, err := st.read(t.Context(), history.Query{})
	if err != nil || len(entries) != 1 {
		t.Errorf("%+v, %v", entries, err)
	}
}

func useListings(t *testing.T, b *base, client *mongo.Client) {
	fill(b)
	fillShared(b)
	ctx, st := t.Context(), storeOn(t, b, client)
	assert.NoErr(t, assert.Err(new(locks).collect(ctx, st)))
	assert.NoErr(t, assert.Err(new(processes).collect(ctx, st)))
	assert.NoErr(t, assert.Err(new(loops).collect(ctx, st)))
	assert.NoErr(t, assert.Err((&locks{name: "condemned"}).details(ctx, st)))
	records := assert.Value(singleton.NewStore(client.Database(b.name)))(t)
	assert.NoErr(t, assert.Err(records.Settings(t.Context(), "x")))
	assert.NoErr(t, assert.Err(new(events).collect(ctx, st)))
}

func useBreaking(t *testing.T, b *base, client *mongo.Client) {
	b.hold("job", 7)
	st := storeOn(t, b, client)
	holders, _, err := st.Holder(t.Context(), "job")
	if err != nil || len(holders) != 1 {
		t.Fatal(holders, err)
	}
	assert.NoErr(t, assert.Err(st.Break(t.Context(), "job", 7, "x", holders[0].Session)))
	assert.NoErr(t, st.history.Close(t.Context()))
}

func usePruning(t *testing.T, b *base, client *mongo.Client) {
	day := clock.System().Now().Wall.Add(-24 * time.Hour)
	b.insert(catalog.LocksCollection, bsontest.D("_id", "job", "state", int32(0), "process", otherProcess,
		"ts", bson.NewObjectID(), "when", bson.NewDateTimeFromTime(day),
		"fence", int64(7), "rev", int64(1)))
	store := assert.Value(mongocatalog.New(client, mongocatalog.Options{Database: b.name}))(t)
	if n, _, err := store.PruneLocks(t.Context(), day.Add(time.Hour), "", 10); n != 1 || err != nil {
		t.Errorf("pruned %d, %v", n, err)
	}
}

func useLoops(t *testing.T, b *base, client *mongo.Client) {
	useLocks(t, b, client)
	records := assert.Value(singleton.NewStore(client.Database(b.name)))(t)
	assert.NoErr(t, assert.Err(records.Settings(t.Context(), "x")))
	assert.NoErr(t, assert.Err(records.Change(t.Context(), singleton.Change{Name: "x", Fence: 1})))
	assert.NoErr(t, assert.Err(records.Records(t.Context())))
}

func useClaims(t *testing.T, b *base, client *mongo.Client) {
	m := managerOn(t, b, client)
	q, err := claim.New[bson.M](t.Context(), m, client.Database(b.name).Collection("rows"),
		claim.Config{KeepDone: time.Hour})
	assert.Must(t, err)
	assert.NoErr(t, q.Add(t.Context(), bson.M{"_id": 1}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	assert.NoErr(t, q.Serve(ctx, time.Second, func(context.Context, *claim.Row[bson.M]) error {
		time.AfterFunc(time.Second, cancel)
		return nil
	}))
	c, err := q.Admin().Count(t.Context())
	assert.NoErr(t, err)
	assert.Equal(t, c.Done, 1, "%d rows are done, want %d")
	assert.Value(q.Admin().Purge(t.Context(), claim.StateDone, 0))(t)
	assert.NoErr(t, errors.Join(q.Admin().SetPaused(t.Context(), true),
		q.Admin().SetPaused(t.Context(), false)))
	assert.NoErr(t, m.Close(t.Context()))
}

// The command "distlock doctor --role" needs no server. It prints a shell command, or with --json
// the document of that command.
func TestDoctorRole_IsADocument(t *testing.T) {
	t.Parallel()
	command := decoded[struct {
		CreateRole string
		Privileges []struct {
			Resource struct{ DB, Collection string }
			Actions  []string
		}
	}](t, cli(t, "doctor", "--role", "--database", "own", "--features", "listings,breaking",
		"--json").want(t, 0))
	text := fmt.Sprint(command.Privileges)
	if command.CreateRole != roleName || !strings.Contains(text, "{own locks} [find update]") ||
		strings.Contains(text, "insert") || strings.Contains(text, "remove") {
		t.Errorf("got %+v", command)
	}
	cli(t, "doctor", "--role").want(t, 0, `db.getSiblingDB("admin").runCommand({`, `"db": "distlock"`,
		"changeStream", "lockhistory")
	cli(t, "doctor", "--role", "--features", "claims").want(t, exitUsage, "--queue")
	cli(t, "doctor", "--role", "--features", "claims", "--queue", "jobs").want(t, 0,
		`"collection": "jobs"`)
	cli(t, "doctor", "--role", "--features", "all").want(t, exitUsage, "there is no feature")
}

// The checks of "distlock doctor" change no document and create no collection. The integration
// tests check the same on a server with users.
func TestDoctor_LeavesNoTrace(t *testing.T) {
	b := newBase(t)
	features := strings.ReplaceAll(role.Names(), " ", "")
	args := b.flags("doctor", "--rounds", "1", "--contenders", "2", "--features", features, "--queue",
		"jobs", "--json")
	examine := func() report {
		t.Helper()
		return cli(t, args...).report(t)
	}
	if r := examine(); len(r.MissingPrivileges) > 0 {
		t.Errorf("a server without users denies %+v", r.MissingPrivileges)
	}
	if names, err := b.db.ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) > 0 {
		t.Errorf("it has made %q (%v)", names, err)
	}
	fill(b)
	before := b.all()
	r := examine()
	if after := b.all(); before != after {
		t.Errorf("it has changed\n%s\ninto\n%s", before, after)
	}
	warnings := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"were removed: gone:6:1:f",
		"without fences and queues: foreign:3:1:c", "take their locks over: dead:4:1:d, silent:2:1:b",
		"3 documents cannot be understood"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("nothing is said of %q:\n%s", want, warnings)
		}
	}
}

func (b *base) all() string {
	b.t.Helper()
	names := assert.Value(b.db.ListCollectionNames(b.t.Context(), bson.D{}))(b.t)
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		cursor, err := b.db.Collection(name).Find(b.t.Context(), bson.D{},
			options.Find().SetSort(bsontest.D("_id", 1)))
		assert.Must(b.t, err)
		var docs []bson.Raw
		assert.Must(b.t, cursor.All(b.t.Context(), &docs))
		text.WriteString(fmt.Sprintln(name, docs))
	}
	return text.String()
}

// The command "distlock doctor" warns of three kinds of members: members whose clocks differ, an
// arbiter that can prevent acknowledged writes, and a member that does not answer.
func TestReport_WarnOfMembers(t *testing.T) {
	t.Parallel()
	ok := func(host string, ahead int64) member {
		return member{Host: host, State: "secondary", AheadMS: &ahead}
	}
	arbiter := member{Host: "d", State: "arbiter", AheadMS: new(int64(1 << 40))}
	for name, c := range map[string]struct {
		members []member
		says    string // empty if no warning is expected
	}{
		"all agree": {[]member{ok("a", 0), ok("b", 29_000), ok("c", -100)}, ""},
		"clocks differ": {[]member{ok("a", -20_000), ok("b", 20_000), ok("c", 0)},
			"the clocks of b and a differ by 40s"},
		"one away": {[]member{ok("a", 0), {Host: "b", Problem: "refused"}, ok("c", 0)},
			"member b does not answer: refused"},
		"arbiter of three": {[]member{ok("a", 0), ok("b", 0), arbiter}, "1 of 3 members are arbiters"},
		"arbiter of five":  {[]member{ok("a", 0), ok("b", 0), ok("c", 0), ok("e", 0), arbiter}, ""},
		"no reply":         {[]member{{Host: "a", Problem: "x"}}, "member a"},
	} {
		r := report{Members: c.members}
		r.warnOfMembers()
		if got := strings.Join(r.Warnings, "\n"); c.says == "" && got != "" ||
			!strings.Contains(got, c.says) {
			t.Errorf("%s: want %q, got %q", name, c.says, got)
		}
	}
	text := assert.Value(json.Marshal(member{Host: "b", Problem: "refused"}))(t)
	if !strings.Contains(string(text), `"aheadMS":null,"roundTripMS":null`) {
		t.Errorf("a clock that was not asked: %s", text)
	}
}

// A grant of the server allows its actions on its collection, on all collections of its database,
// or on all databases except config.
func TestGrant_Allows_ItsResourceOnly(t *testing.T) {
	t.Parallel()
	for resource, want := range map[string]string{
		`{"db": "d", "collection": "locks"}`: "d.locks",
		`{"db": "d", "collection": ""}`:      "d.locks d.other d.",
		`{"db": "", "collection": ""}`:       "d.locks d.other d.",
		`{"db": "", "collection": "locks"}`:  "d.locks",
		`{"db": "config", "collection": ""}`: "config.locks",
		`{"db": "e", "collection": "locks"}`: "",
		`{"db": "d", "system_buckets": "x"}`: "",
		`{"cluster": true}`:                  "",
		`{"anyResource": true}`:              "d.locks d.other d. config.locks",
	} {
		var g grant
		assert.Must(t, bson.UnmarshalExtJSON([]byte(`{"resource": `+resource+`, "actions": ["find"]}`),
			false, &g))
		var got []string
		for _, name := range []string{"d.locks", "d.other", "d.", "config.locks"} {
			database, collection, _ := strings.Cut(name, ".")
			if g.allows("find", database, collection) {
				got = append(got, name)
			}
			if g.allows("insert", database, collection) {
				t.Errorf("%s allows another action", resource)
			}
		}
		assert.Equal(t, strings.Join(got, " "), want, resource+" allows %q, want %q")
	}
}
