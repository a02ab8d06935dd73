package integration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// patient is a process whose locks a slow machine does not cost it.
func (w *world) patient(t testing.TB) *distlock.Manager {
	t.Helper()
	return w.start(t, func(cfg *distlock.Config) {
		cfg.Takeover, cfg.CommandTimeout = 5*time.Minute, time.Minute
	})
}

// Rows with a field that cannot be understood keep nobody else's row from being worked on, and stay
// as they are.
func TestClaim_MalformedRows_AreLeftAlone(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		for _, batch := range []int{1, 10} {
			coll := w.rowsOf(t, w.d.app)
			odd := []any{
				bson.D{field("_id", -5), field("claim", "mine")},
				bson.D{field("_id", -4), field("claim", bson.D{field("fence", "x")})},
				bson.D{field("_id", -3), inState("clamed")},
				bson.D{field("_id", -2), inState("claimed")},
			}
			assert.Value(coll.InsertMany(t.Context(), odd))(t)
			if w.d.name != "embedded" { // which knows no such number
				insert(t, coll, bson.D{field("_id", -1), // a claim changes it, and cannot read it
					field("claim", bson.D{field("attempts", bson.NewDecimal128(0x3040<<48, 1))})})
			}
			q := w.claims(t, w.patient(t), coll, claim.Config{Batch: batch, Sort: bson.D{field("_id", 1)},
				Poll: 50 * time.Millisecond})
			assert.Must(t, q.Add(t.Context(), jobs(15)...))
			stop := runs(t, q, func(_ context.Context, row *claim.Row[job]) error {
				if row.Doc.ID < 0 {
					t.Errorf("row %d was given", row.Doc.ID)
				}
				return nil
			})
			eventually(t, standstill, "all others are done", func() bool {
				c, err := q.Counts(t.Context())
				return err == nil && c.Done == 15
			})
			stop()
			for _, doc := range odd {
				want, _ := bson.Marshal(doc)
				got, err := coll.FindOne(t.Context(), bson.D{doc.(bson.D)[0]}).Raw()
				if err != nil || string(got) != string(want) {
					t.Errorf("row is %v, %v, want %v", got, err, bson.Raw(want))
				}
			}
		}
	})
}

// A row is done together with what its handler adds, or neither is.
func TestClaim_DoneWith_BothOrNeither(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		cfg := claim.Config{Batch: 2, InFlight: 4, Sort: bson.D{field("_id", 1)}}
		q := w.claims(t, w.patient(t), coll, cfg)
		assert.Must(t, q.Add(t.Context(), jobs(2)...))
		taken, err := q.Claim(t.Context(), 2)
		if err != nil || len(taken) != 2 {
			t.Fatalf("%d rows, %v", len(taken), err)
		}
		add := func(id int) func(ctx context.Context) error {
			return func(ctx context.Context) error { return q.Add(ctx, job{ID: id}) }
		}
		err = taken[0].DoneWith(t.Context(), add(10))
		if w.d.name == "embedded" || w.d.name == "standalone" {
			wantErr(t, err, claim.ErrNoTransactions)
			wantCounts(t, q, 0, claim.Counts{Claimed: 2})
			return
		}
		if errors.Is(err, claim.ErrNoTransactions) {
			t.Skipf("%v", err) // database config
		}
		assert.Must(t, err)
		broken := errors.New("broken")
		err = taken[1].DoneWith(t.Context(), func(ctx context.Context) error {
			return errors.Join(q.Add(ctx, job{ID: 11}), broken)
		})
		wantErr(t, err, broken)
		wantCounts(t, q, 0, claim.Counts{Ready: 1, Claimed: 1, Done: 1})
		ready := set(field("claim.state", "ready"))
		assert.Value(coll.UpdateOne(t.Context(), byID(1), ready))(t)
		wantErr(t, taken[1].DoneWith(t.Context(), add(12)), claim.ErrLost)
		wantErr(t, taken[1].DoneWith(t.Context(), add(13)), claim.ErrFinished)
		wantCounts(t, q, 0, claim.Counts{Ready: 2, Done: 1})
	})
}

// Where there are change streams a process hears of a row that another program adds; where there
// are none it polls.
func TestClaim_NewRow_WakesAnIdleProcess(t *testing.T) {
	t.Parallel()
	forThese(t, named("embedded", "replicaset"), func(t *testing.T, w *world) {
		cfg := claim.Config{Poll: 20 * time.Minute} // its ten times are never waited for
		if w.d.name == "embedded" {
			cfg.Poll = 100 * time.Millisecond
		}
		coll := w.rowsOf(t, w.d.app)
		assert.Must(t, w.db.CreateCollection(t.Context(), coll.Name()))
		q := w.claims(t, w.patient(t), coll, cfg)
		handled := make(chan struct{}, 10)
		stop := runs(t, q, func(context.Context, *claim.Row[job]) error {
			handled <- struct{}{}
			return nil
		})
		defer stop()
		for id := range 3 {
			assert.Value(coll.InsertOne(t.Context(), job{ID: id}))(t)
			eventually(t, standstill, "the row is handled", func() bool { return len(handled) > id })
		}
	})
}

// Ten thousand dead rows are not looked at by a claim.
func TestClaim_TenThousandDead_AreNotLookedAt(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone", "replicaset"), func(t *testing.T, w *world) {
		const dead = 10_000
		coll := w.rowsOf(t, w.d.app)
		docs := make([]any, dead)
		for i := range docs {
			docs[i] = bson.D{field("_id", i),
				field("claim", bson.D{field("state", "dead"), field("error", "no")})}
		}
		assert.Value(coll.InsertMany(t.Context(), docs))(t)
		sort := bson.D{field("_id", 1)}
		q := w.claims(t, w.patient(t), coll, claim.Config{Batch: 10, Sort: sort})
		assert.Must(t, q.Add(t.Context(), job{ID: dead}, job{ID: dead + 1}))
		plan := explained(t, w.db, bson.D{
			field("find", coll.Name()), field("sort", sort), field("limit", 10),
			field("filter", bson.D{field("claim.state", bson.D{field("$in", bson.A{nil, "ready"})})}),
		})
		if n := plan.Lookup("executionStats", "totalKeysExamined").AsInt64(); n > 10 {
			t.Errorf("%d keys were looked at for 2 rows", n)
		}
		taken, err := q.Claim(t.Context(), 10)
		if err != nil || len(taken) != 2 {
			t.Errorf("%d rows, %v, want 2", len(taken), err)
		}
		wantCounts(t, q, 0, claim.Counts{Claimed: 2, Dead: dead})
	})
}

// Without the privilege for an index New names it, and the command for somebody who has it; without
// that for the rows each call names what is missing. With the index there, nothing more is needed.
func TestClaim_MissingPrivileges_AreNamed(t *testing.T) {
	d := withUsers(t)
	m, err := distlock.New(t.Context(), userConfig(d.as("root")))
	assert.Must(t, err)
	defer func() { assert.NoErr(t, m.Close(context.WithoutCancel(t.Context()))) }()
	as := func(user string) *mongo.Collection {
		client := privateClient(t, options.Client().ApplyURI(d.as(user)))
		return client.Database("distlock").Collection("rows")
	}
	root, reader, pinger := as("root"), as("reader"), as("pinger")
	_, err = claim.New[job](t.Context(), m, pinger, claim.Config{})
	wantPrivilege(t, err, "distlock.rows", "listIndexes")
	_, err = claim.New[job](t.Context(), m, reader, claim.Config{})
	wantPrivilege(t, err, "distlock.rows", "createIndex")
	const command = `getCollection("rows").createIndex({"claim.state":1,"claim.notBefore":1})`
	if !strings.Contains(err.Error(), command) {
		t.Errorf("the error does not say %s: %v", command, err)
	}
	assert.Value(claim.New[job](t.Context(), m, root, claim.Config{}))(t)
	assert.Value(root.InsertOne(t.Context(), job{ID: 1}))(t)
	q, err := claim.New[job](t.Context(), m, reader, claim.Config{})
	assert.Must(t, err)
	defer func() { _ = q.Close(context.WithoutCancel(t.Context())) }() // it may not give anything back
	_, err = q.Claim(t.Context(), 1)
	wantPrivilege(t, err, "distlock.rows", "find", "update")
	err = q.Run(t.Context(), func(context.Context, *claim.Row[job]) error { return nil })
	wantPrivilege(t, err, "distlock.rows", "find", "update")
}

// Of two processes with rows one is killed, the other stopped until a third has done all of their
// rows. Each row is done once, and the one that goes on learns it from every completion.
func TestClaim_ProcessesKilledAndStopped_RowsAreRescued(t *testing.T) {
	t.Parallel()
	forThese(t, processed, func(t *testing.T, w *world) {
		const each = 5
		coll := w.rowsOf(t, w.d.app)
		unhurried := func(s *childSettings) {
			s.Ping, s.Takeover = paced(time.Second), paced(12*time.Second)
		}
		killed, stopped := w.bear(t, unhurried), w.bear(t, unhurried)
		q := w.claims(t, w.start(t, unhurriedTakeover), coll, claim.Config{Batch: each,
			Tend: time.Second, Poll: time.Second / 2})
		assert.Must(t, q.Add(t.Context(), jobs(2*each)...))
		for _, child := range []*relative{killed, stopped} {
			if a := child.ask(order{Do: "claim", Name: coll.Name(), N: each}); a.N != each {
				t.Fatalf("a child claimed: %+v", a)
			}
		}
		killed.kill()
		stopped.stop()
		injected.add(w.d.name, "SIGKILL", "claiming rows")
		injected.add(w.d.name, "SIGSTOP", "claiming rows")
		stop := runs(t, q, func(_ context.Context, row *claim.Row[job]) error {
			if row.Fence() < 2 {
				t.Errorf("row %d has fence %d", row.Doc.ID, row.Fence())
			}
			return nil
		})
		wantCounts(t, q, standstill, claim.Counts{Done: 2 * each})
		stop()
		stopped.tell(order{Do: "complete"})
		stopped.resume()
		if a := stopped.hear(); a.N != each {
			t.Errorf("the completions of the one that was stopped: %+v, want %d lost", a, each)
		}
		wantCounts(t, q, 0, claim.Counts{Done: 2 * each})
	})
}

// It tries to break: a row whose holder is over is ready again, although an operator took attempts,
// slotFence or beat out of its field.
func TestClaim_NumbersTakenOutByHand_RowIsRescued(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		store := rows.NewMongo(coll, "claim", nil, bson.D{field("_id", 1)})
		for id, gone := range []string{"attempts", "slotFence", "beat"} {
			assert.Must(t, store.Insert(t.Context(), []any{job{ID: id}}))
			c := rows.Claim{Slot: gone, SlotFence: 1, Session: bson.NewObjectID(),
				Batch: bson.NewObjectID(), Lease: time.Second}
			if row, err := store.MarkOne(t.Context(), c, nil); err != nil || row == nil {
				t.Fatal(row, err)
			}
			assert.Value(coll.UpdateOne(t.Context(), byID(id),
				bson.D{field("$unset", bson.D{field("claim."+gone, "")})}))(t)
			rescued := func(n int, err error) {
				t.Helper()
				if err != nil || n != 1 {
					t.Errorf("without %s: %d rows, %v", gone, n, err)
				}
			}
			if gone == "beat" {
				found, err := store.Leased(t.Context())
				if err != nil || len(found) != 1 {
					t.Fatal(found, err)
				}
				rescued(store.Expire(t.Context(), time.Now(), found[0], 3))
				continue
			}
			rescued(store.Tidy(t.Context(), time.Now(), rows.Slot{Name: gone}, 2, 3))
			assert.Value(coll.UpdateOne(t.Context(), byID(id), set(field("claim.state", "done"))))(t)
		}
	})
}

// It tries to break: a row cannot be cancelled where the collection is sharded by another field
// than _id, nor one whose handler has changed what Filter names.
func TestClaim_Cancel_ShardedAndFiltered(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset", "mongos"), func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		if w.d.name == "mongos" {
			assert.Must(t, w.d.over.Run(t.Context(), bson.D{field("enableSharding", w.db.Name())}))
			assert.Must(t, w.d.over.Run(t.Context(), bson.D{
				field("shardCollection", w.db.Name()+"."+coll.Name()),
				field("key", bson.D{field("n", "hashed")})}))
		}
		q := w.claims(t, w.patient(t), coll, claim.Config{InFlight: 2, Filter: bson.D{field("n", 0)}})
		assert.Must(t, q.Add(t.Context(), jobs(2)...))
		row := assert.Value(q.Claim(t.Context(), 1))(t)[0]
		if w.d.name == "replicaset" { // what a collection is sharded by is not changed so
			assert.Value(coll.UpdateByID(t.Context(), row.Doc.ID, set(field("n", 1))))(t)
		}
		for id := range 2 {
			assert.NoErr(t, q.Cancel(t.Context(), id))
		}
		assert.NoErr(t, row.Fail(t.Context(), errors.New("broken")))
		dead := bson.D{field("claim.state", "dead")}
		assert.Equal(t, w.count(t, coll, dead), 2, "%d are dead, want %d")
	})
}

// It tries to break: what a transaction of DoneWith reads is refused to a client of secondaries.
func TestClaim_DoneWith_ClientOfSecondaries_MayRead(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset"), func(t *testing.T, w *world) {
		opts := options.Client().ApplyURI(w.d.uri).SetReadPreference(readpref.SecondaryPreferred())
		coll := w.rowsOf(t, privateClient(t, opts))
		q := w.claims(t, w.patient(t), coll, claim.Config{})
		assert.Must(t, q.Add(t.Context(), jobs(1)...))
		row := assert.Value(q.Claim(t.Context(), 1))(t)[0]
		assert.NoErr(t, row.DoneWith(t.Context(), func(ctx context.Context) error {
			return coll.FindOne(ctx, bson.D{}).Err()
		}))
	})
}
