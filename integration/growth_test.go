package integration_test

import (
	"context"
	"flag"
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
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
)

var freeNames = flag.Int("freenames", 2000,
	"how many free lock documents stand beside those that TestQueries_FreeNames_CostNothing reads")

// A tape counts the commands of a client, and records those that read documents.
type tape struct {
	namesOnly bool // records no commands, for measurements

	mu       sync.Mutex // guards the fields below
	sent     []string   // the names and collections of all commands
	commands []bson.D
}

func (p *tape) monitor() *event.CommandMonitor {
	reads := []string{"find", "aggregate", "findAndModify", "update", "delete"}
	leaveOut := []string{
		"lsid", "$db", "$clusterTime", "txnNumber", "writeConcern", "readConcern", "$readPreference",
		"maxTimeMS", "apiVersion", "apiStrict",
	}
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		p.mu.Lock()
		defer p.mu.Unlock()
		collection, _ := e.Command.Lookup(e.CommandName).StringValueOK()
		p.sent = append(p.sent, strings.TrimSpace(e.CommandName+" "+collection))
		if p.namesOnly || !slices.Contains(reads, e.CommandName) {
			return
		}
		elements, _ := e.Command.Elements() // valid, because the driver made the command
		var command bson.D
		for _, one := range elements {
			if !slices.Contains(leaveOut, one.Key()) {
				v := one.Value()
				v.Value = slices.Clone(v.Value)
				command = append(command, bson.E{Key: one.Key(), Value: v})
			}
		}
		p.commands = append(p.commands, command)
	}}
}

// take returns the commands since the previous call of take.
func (p *tape) take() []bson.D {
	p.mu.Lock()
	defer p.mu.Unlock()
	commands := p.commands
	p.commands, p.sent = nil, nil
	return commands
}

// names returns the names and collections of all commands since the previous call of take or names.
func (p *tape) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := p.sent
	p.commands, p.sent = nil, nil
	return sent
}

// large lists the deployments for tests with many documents. The embedded server is too slow for
// them.
var large = named("standalone", "replicaset", "configsvr", "mongos", "sharded")

// Free locks in the collection do not change how many keys and documents a command reads. The
// process of the test held these locks last. The flag -freenames sets their number.
func TestQueries_FreeNames_CostNothing(t *testing.T) {
	inTurn(t, large, func(t *testing.T, w *world) {
		w.wantNoGrowth(t, options.Client())
	})
}

// With the strict Stable API, free locks do not change how many keys and documents a command reads.
// This API forbids sparse indexes and text indexes.
func TestQueries_FreeNames_StrictClient(t *testing.T) {
	inTurn(t, large, func(t *testing.T, w *world) {
		if version := w.start(t, nil).Stats().Server.Version; strings.HasPrefix(version, "4.") {
			t.Skipf("MongoDB %s knows no Stable API", version)
		}
		strict := options.ServerAPI(options.ServerAPIVersion1).SetStrict(true)
		w.wantNoGrowth(t, options.Client().SetServerAPIOptions(strict))
	})
}

// wantNoGrowth checks that each command reads as many keys and documents with many free locks as
// with few. opts are the options of the client.
func (w *world) wantNoGrowth(t *testing.T, opts *options.ClientOptions) {
	t.Helper()
	var sent tape
	client := privateClient(t, opts.ApplyURI(w.d.uri).SetMonitor(sent.monitor()))
	c := assert.Value(mongocatalog.New(client, mongocatalog.Options{Database: w.db.Name()}))(t)
	if warnings, err := c.Prepare(t.Context()); err != nil || len(warnings) > 0 {
		t.Fatalf("warnings %q, %v", warnings, err)
	}
	if missing, err := c.MissingIndexes(t.Context()); err != nil || len(missing) > 0 {
		t.Fatalf("missing %q, %v", missing, err)
	}
	w.plantFree(t, "some", 100) // without free locks the server may scan all locks
	few := w.examined(t, c, client, &sent)
	w.plantFree(t, "free", *freeNames)
	many := w.examined(t, c, client, &sent)
	for _, verb := range slices.Sorted(maps.Keys(few)) {
		t.Logf("%-12s keys and documents read: %v, with %d free names %v",
			verb, few[verb], *freeNames, many[verb])
		if slices.Compare(few[verb], many[verb]) != 0 {
			t.Errorf("%s: read %v keys and documents, and %v with %d free names", verb, few[verb],
				many[verb], *freeNames)
		}
	}
}

// plantFree plants n free locks that the process of the test held last.
func (w *world) plantFree(t *testing.T, names string, n int) {
	t.Helper()
	locks := w.db.Collection(catalog.LocksCollection)
	for from := 0; from < n; from += 1000 {
		var docs []any
		for i := from; i < min(n, from+1000); i++ {
			docs = append(docs, bson.D{
				field("_id", w.name(fmt.Sprint(names, "-", i))), field("state", int32(0)),
				field("process", w.name("p")), field("ts", bson.NewObjectID()),
				field("fence", int64(1)<<40), field("rev", int64(2)), field("takeoverMS", int64(900_000)),
			})
		}
		assert.Value(locks.InsertMany(t.Context(), docs))(t)
	}
}

// examined runs each operation of a store. For each operation it returns the numbers of keys and
// documents that its commands read.
func (w *world) examined(
	t *testing.T, c *mongocatalog.Catalog, client *mongo.Client, sent *tape,
) map[string][]int64 {
	t.Helper()
	costs := map[string][]int64{}
	for _, one := range w.operations(t, c) {
		sent.take()
		if err := one.run(t.Context()); err != nil {
			t.Fatalf("%s: %v", one.verb, err)
		}
		commands := sent.take()
		if len(commands) == 0 {
			t.Fatalf("%s sent nothing", one.verb)
		}
		for _, command := range commands {
			plan := explained(t, client.Database(w.db.Name()), command)
			costs[one.verb] = append(costs[one.verb], total(plan, "totalKeysExamined"),
				total(plan, "totalDocsExamined"))
		}
	}
	return costs
}

// explained returns the plan of a command with its execution statistics.
func explained(t testing.TB, db *mongo.Database, command bson.D) (plan bson.Raw) {
	t.Helper()
	question := bson.D{field("explain", command), field("verbosity", "executionStats")}
	assert.Must(t, db.RunCommand(t.Context(), question).Decode(&plan), fmt.Sprint(command))
	return plan
}

// total adds up the values of a key at all depths of a document.
func total(doc bson.Raw, key string) int64 {
	elements, err := doc.Elements()
	if err != nil {
		return 0
	}
	sum := int64(0)
	for _, e := range elements {
		v := e.Value()
		switch v.Type {
		case bson.TypeEmbeddedDocument:
			sum += total(v.Document(), key)
		case bson.TypeArray:
			sum += total(bson.Raw(v.Array()), key)
		default:
			if n, ok := v.AsInt64OK(); ok && e.Key() == key {
				sum += n
			}
		}
	}
	return sum
}

type operation struct {
	verb string
	run  func(ctx context.Context) error
}

// operations plants documents and returns the store's operations on them. It omits Ping, which
// finds its document by _id.
func (w *world) operations(t *testing.T, c *mongocatalog.Catalog) []operation {
	t.Helper()
	me, other := w.name("p"), w.name("other")
	grant := func(name, process string) catalog.Request {
		return catalog.Request{Session: catalog.Session{Name: w.name(name), TS: bson.NewObjectID()},
			Process: process, Who: "who", Why: "why", Takeover: time.Minute}
	}
	locks, on := w.db.Collection(catalog.LocksCollection), catalogtest.On(c)
	for name := range strings.FieldsSeq("mine theirs line shared seeded broken left new") {
		assert.Value(locks.DeleteOne(t.Context(), byID(w.name(name))))(t)
	}
	enter := func(g catalog.Request) catalog.Request {
		assert.Value(on.Enter(t.Context(), g, catalog.Queue))(t)
		return g
	}
	mine, theirs := enter(grant("mine", me)), enter(grant("theirs", other))
	head := enter(grant("line", other))
	waiting, behind := enter(grant("line", me)), enter(grant("line", other))
	reader := grant("shared", me)
	reader.Mode = catalog.Shared
	enter(reader)
	broken, seeded := enter(grant("broken", me)), enter(grant("seeded", me))
	enter(grant("left", other))
	enter(grant("left", me))
	left := w.document(t, catalog.LocksCollection, w.name("left"))
	w.plant(t, catalog.LocksCollection, freed(left))
	for _, id := range []string{"dead", "old"} {
		w.plant(t, catalog.PingsCollection, bson.D{field("_id", w.name(id)),
			field("ping", bson.DateTime(5)), field("seq", int64(1))})
	}
	names := []string{w.name("line"), w.name("mine"), w.name("left")}
	fresh := grant("new", me)
	return []operation{
		{"Held", func(ctx context.Context) error { return assert.Err(c.Held(ctx, me)) }},
		{"Waiting", func(ctx context.Context) error {
			for _, err := range c.List(ctx, true) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"HeldOrFree", func(ctx context.Context) error {
			return assert.Err(c.HeldOrFree(ctx, me, names, nil))
		}},
		{"Snapshots", func(ctx context.Context) error { return assert.Err(c.Snapshots(ctx, names)) }},
		{"Read", func(ctx context.Context) error { return assert.Err(c.Read(ctx, names[0])) }},
		{"Acquire", func(ctx context.Context) error {
			return assert.Err(on.Enter(ctx, fresh, catalog.TryPlain))
		}},
		{"Confirm", func(ctx context.Context) error { return assert.Err(on.Confirm(ctx, fresh)) }},
		{"SeedFence", func(ctx context.Context) error {
			return assert.Err(on.SeedFence(ctx, seeded.Session, 1<<41))
		}},
		{"TakeOver", func(ctx context.Context) error {
			from := catalog.Holder{Session: theirs.Session, Process: other}
			return assert.Err(on.TakeOver(ctx, grant("theirs", me), from))
		}},
		{"PutFirst", func(ctx context.Context) error {
			return on.PutFirst(ctx, head.Session, behind.TS)
		}},
		{"RequestYield", func(ctx context.Context) error {
			return on.RequestYield(ctx, names[0], "x", "y")
		}},
		{"Release", func(ctx context.Context) error { return assert.Err(on.Leave(ctx, mine.Session)) }},
		{"Leave", func(ctx context.Context) error { return assert.Err(on.Leave(ctx, waiting.Session)) }},
		{"Evict", func(ctx context.Context) error {
			dead := catalog.Holder{Session: behind.Session, Process: other}
			return assert.Err(on.Evict(ctx, dead, "silent"))
		}},
		{"GrantNext", func(ctx context.Context) error { return assert.Err(on.GrantNext(ctx, names[2])) }},
		{"Break", func(ctx context.Context) error {
			l := w.lock(t, broken.Name)
			return assert.Err(on.Break(ctx, broken.Session, l.Fence, "why"))
		}},
		{"Condemn", func(ctx context.Context) error {
			seen := &catalog.Ping{Seq: 1, HasSeq: true}
			return on.Condemn(ctx, w.name("dead"), seen, catalog.Condemnation{})
		}},
		{"OldPings", func(ctx context.Context) error {
			return assert.Err(c.OldPings(ctx, time.UnixMilli(1_000_000)))
		}},
		{"Prune", func(ctx context.Context) error {
			return assert.Err(c.Prune(ctx, []catalog.OldPing{{Process: w.name("dead")}}))
		}},
	}
}

// freed returns a copy of a lock document with state 0. All other fields keep their values.
func freed(raw bson.Raw) bson.D {
	var doc bson.D
	_ = bson.Unmarshal(raw, &doc) // valid, because the server sent the document
	for i := range doc {
		if doc[i].Key == "state" {
			doc[i].Value = int32(0)
		}
	}
	return doc
}
