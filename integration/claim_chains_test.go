package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/claim"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// eventKeys returns keys*each rows. Their keys alternate, and their _ids are serial numbers.
func eventKeys(keys, each int) []any {
	var docs []any
	for i := range keys * each {
		docs = append(docs, bson.D{field("_id", i), field("event", fmt.Sprint("e", i%keys))})
	}
	return docs
}

func insert(t *testing.T, coll *mongo.Collection, docs ...any) {
	t.Helper()
	assert.Value(coll.InsertMany(t.Context(), docs))(t)
}

// If the server cannot create the unique index for Config.Key, New returns an error that names Key.
// The embedded server has no partial indexes. In a sharded collection, only the shard key can have
// a unique index.
func TestChains_NewSaysSo(t *testing.T) {
	t.Parallel()
	forThese(t, named("embedded", "sharded"), func(t *testing.T, w *world) {
		cfg := claim.Config{Key: "event", Workers: 2}
		coll := w.rowsOf(t, w.d.app)
		shard := func(coll *mongo.Collection, key bson.D) {
			t.Helper()
			admin := w.d.app.Database("admin")
			for _, command := range []bson.D{
				{field("enableSharding", coll.Database().Name())},
				{field("shardCollection", coll.Database().Name()+"."+coll.Name()), field("key", key)},
			} {
				assert.Must(t, admin.RunCommand(t.Context(), command).Err())
			}
		}
		if w.d.name == "sharded" {
			shard(coll, bson.D{field("_id", "hashed")})
		}
		insert(t, coll, eventKeys(2, 2)...)
		_, err := claim.New[job](t.Context(), w.start(t, nil), coll, cfg)
		if !errors.Is(err, claim.ErrConfig) || !strings.Contains(fmt.Sprint(err), `Key "event"`) {
			t.Errorf("error is %v, want ErrConfig and the name of Key", err)
		}
		t.Log(err)
		if w.d.name != "sharded" {
			return
		}
		coll = w.rowsOf(t, w.d.app)
		shard(coll, bson.D{field("event", 1)})
		split := bson.D{field("split", coll.Database().Name()+"."+coll.Name()),
			field("middle", bson.D{field("event", "e2")})}
		assert.Must(t, w.d.app.Database("admin").RunCommand(t.Context(), split).Err())
		insert(t, coll, eventKeys(10, 6)...)
		q := w.claims(t, w.start(t, nil), coll, cfg)
		defer runs(t, q, func(context.Context, *claim.Row[job]) error { return nil })()
		wantCounts(t, q, standstill, claim.Counts{Done: 60})
	})
}

// A key with many rows does not make a claim slow. The query for held keys reads only an index. The
// query for the first row reads at most the rows of one key and two more rows, without a sort.
func TestChains_HotKey_Explained(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone"), func(t *testing.T, w *world) {
		var sent tape
		coll := w.rowsOf(t, w.client(t, &sent))
		store := rows.NewMongo(coll, rows.Options{Field: "claim", Key: "event"})
		assert.Must(t, store.Prepare(t.Context()))
		var docs []any
		for i := range 2000 {
			docs = append(docs, bson.D{field("_id", i), field("event", "old"), inState("done")})
		}
		for i := range 500 {
			docs = append(docs, bson.D{field("_id", 2000+i), field("event", "hot")})
		}
		insert(t, coll, append(docs, bson.D{field("_id", 5000), field("event", bson.A{1, 2})},
			bson.D{field("_id", 5001), field("event", "cold")})...)
		c := rows.Claim{Slot: rows.SlotPrefix + "s", Session: bson.NewObjectID(), Batch: bson.NewObjectID()}
		for range 20 { // the server's planner may change its plan
			sent.take()
			held := assert.Value(store.Held(t.Context()))(t)
			assert.Value(store.First(t.Context(), rows.Ask{Held: held}))(t)
			if len(held) == 0 {
				assert.Value(store.Claim(t.Context(), c, rows.Ask{Held: held}))(t)
			}
		}
		commands := sent.take()
		wantIndexed(t, coll.Database(), commands[:1], 0, 510)
		wantIndexed(t, coll.Database(), commands[1:], 502, 510)
	})
}

// wantIndexed checks that each command reads at most the given numbers of documents and keys,
// without a sort.
func wantIndexed(t *testing.T, db *mongo.Database, commands []bson.D, documents, keys int64) {
	t.Helper()
	for _, command := range commands {
		plan := explained(t, db, command)
		d, k := total(plan, "totalDocsExamined"), total(plan, "totalKeysExamined")
		text := plan.String()
		if d > documents || k > keys || strings.Contains(text, `"SORT"`) ||
			strings.Contains(text, "COLLSCAN") {
			t.Errorf("%v reads %d documents and %d keys: %s", command[0], d, k,
				text[:min(len(text), 3000)])
		}
	}
}

// The rows with one key form a chain. If an operator gives this key to a row that never runs, the
// chain still continues. It also continues after the collection and its indexes are dropped.
func TestChains_ByHand_NoChainStandsStill(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone", "replicaset"), func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		cfg := claim.Config{Key: "event",
			Filter: bson.D{field("kind", nil)}}
		q := w.claims(t, w.start(t, nil), coll, cfg)
		var docs []any
		for i, mark := range []bson.D{
			{field("state", "done")}, {field("state", "dead")},
			{field("state", nil)}, {field("state", "ready")},
		} {
			row := func(n int) bson.D { return bson.D{field("_id", 10*i+n), field("event", i)} }
			first := append(row(0), field("claim", append(mark, field("holds", "event"))))
			if i > 1 {
				first = append(first, field("kind", "another"))
			}
			docs = append(docs, first, row(1), row(2))
		}
		insert(t, coll, docs...)
		var mu sync.Mutex
		var done []int
		stop := runs(t, q, func(_ context.Context, row *claim.Row[job]) error {
			mu.Lock()
			defer mu.Unlock()
			done = append(done, row.Doc.ID)
			return nil
		})
		all := func(want ...int) {
			t.Helper()
			eventually(t, standstill, fmt.Sprintf("rows %v are done", want), func() bool {
				mu.Lock()
				defer mu.Unlock()
				got := slices.Sorted(slices.Values(done))
				equal := slices.Equal(got, want)
				if equal {
					done = nil
				}
				return equal
			})
		}
		all(1, 2, 11, 12, 21, 22, 31, 32)
		assert.Must(t, coll.Drop(t.Context()))
		insert(t, coll, eventKeys(2, 2)...)
		all(0, 1, 2, 3)
		stop()
		if missing, err := q.Admin().MissingIndexes(t.Context()); err != nil || len(missing) > 0 {
			t.Errorf("missing are %v, %v", missing, err)
		}
	})
}
