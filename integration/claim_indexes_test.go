package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// It tries to break: what a process reads to look after its own rows grows with those that others
// have claimed. Neither it nor who looks after the rows of all reads a document of another; the
// latter reads keys of the index, two or three of each claimed row.
func TestClaim_RowsOfOthers_AreNotRead(t *testing.T) {
	inTurn(t, named("standalone", "mongos"), func(t *testing.T, w *world) {
		const own, others, each = 20, 100, 20
		var sent tape
		coll := w.rowsOf(t, w.client(t, &sent))
		store := rows.NewMongo(coll, "claim", nil, nil)
		assert.Must(t, store.Prepare(t.Context()))
		if missing, err := store.Missing(t.Context()); err != nil || len(missing) > 0 {
			t.Fatalf("missing %q, %v", missing, err)
		}
		add := func(first, n int, state rows.State, claim bson.D) {
			t.Helper()
			docs := make([]any, n)
			for i := range docs {
				docs[i] = bson.D{field("_id", first+i), field("claim", append(bson.D{field("state", state),
					field("fence", 1), field("attempts", 1)}, claim...))}
			}
			assert.Must(t, store.Insert(t.Context(), docs))
		}
		claimed := func(first, n int, slot string) bson.ObjectID {
			t.Helper()
			session := bson.NewObjectID()
			add(first, n, rows.Claimed, bson.D{field("locks", "locks"), field("slot", slot),
				field("slotFence", int64(7)), field("session", session), field("batch", bson.NewObjectID())})
			return session
		}
		slot := rows.Slot{Locks: "locks", Name: "own"}
		session := claimed(0, own, slot.Name)
		read := func(name string, run func(context.Context) error) (keys, docs int64) {
			t.Helper()
			sent.take()
			if err := run(t.Context()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, command := range sent.take() {
				for _, one := range alone(command) {
					plan := explained(t, coll.Database(), one)
					keys += total(plan, "totalKeysExamined")
					docs += total(plan, "totalDocsExamined")
				}
			}
			return keys, docs
		}
		type cost struct{ keys, docs int64 }
		costs := func() map[string]cost {
			found := map[string]cost{}
			for name, run := range map[string]func(context.Context) error{
				"tidy": func(ctx context.Context) error {
					return assert.Err(store.Tidy(ctx, time.Now(), slot, 7, 10))
				},
				"batches": func(ctx context.Context) error {
					return assert.Err(store.Batches(ctx, slot, session))
				},
				"slots":  func(ctx context.Context) error { return assert.Err(store.Slots(ctx)) },
				"odd":    func(ctx context.Context) error { return assert.Err(store.Odd(ctx)) },
				"leased": func(ctx context.Context) error { return assert.Err(store.Leased(ctx)) },
			} {
				keys, docs := read(name, run)
				found[name] = cost{keys, docs}
			}
			return found
		}
		add(100_000, 500, rows.Done, nil)
		few := costs()
		for i := range others {
			claimed(own+each*i, each, "other"+bson.NewObjectID().Hex())
		}
		add(200_000, 2000, rows.Done, nil)
		many := costs()
		for name, now := range many {
			t.Logf("%-8s with %d rows of others: %+v, before: %+v", name, others*each, now, few[name])
			switch name {
			case "tidy", "batches":
				if now != few[name] || now.docs > own {
					t.Errorf("%s reads %+v, and %+v without rows of others", name, now, few[name])
				}
			default:
				if now.docs > 0 || now.keys > 6*(own+others*each) {
					t.Errorf("%s reads %+v", name, now)
				}
			}
		}
	})
}

// alone are the statements of a command, each as a command: only such can be explained.
func alone(command bson.D) (each []bson.D) {
	for i, one := range command {
		value, ok := one.Value.(bson.RawValue)
		if !ok || one.Key != "updates" {
			continue
		}
		list, _ := value.Array().Values()
		for _, update := range list {
			copied := slices.Clone(command)
			copied[i].Value = bson.A{update}
			each = append(each, copied)
		}
		return each
	}
	return []bson.D{command}
}

// It tries to break: rows are asked for in an order, and the planner takes another index that has
// them so, that of _id or one of the user's, with which all that is done is read past. The index
// that the queue has made is named, or a longer one of the user's that begins as it does.
func TestClaim_Order_HasItsIndex(t *testing.T) {
	t.Parallel()
	forThese(t, named("standalone"), func(t *testing.T, w *world) {
		for _, one := range []struct {
			name, want string
			due        string
			sort       bson.D
			users      []bson.D
			others     int // documents before the row of which no plan knows that they are none
		}{
			{"by _id", "claim.state_1__id_1", "", bson.D{field("_id", 1)}, nil, 10},
			{"by a longer one", "claim.state_1_n_1_m_1", "", bson.D{field("n", 1)},
				[]bson.D{{field("n", 1)}, {field("claim.state", 1), field("n", 1), field("m", 1)}}, 10},
			{"due", "claim.state_1_at_1", "at", nil, []bson.D{{field("at", 1)}}, 10_500},
		} {
			var sent tape
			coll := w.rowsOf(t, w.client(t, &sent))
			for _, keys := range one.users {
				assert.Value(coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: keys}))(t)
			}
			store := rows.NewMongo(coll, "claim", bson.D{field("kind", "b")}, one.sort).Due(one.due)
			assert.Must(t, store.Prepare(t.Context()))
			at := assert.Value(store.Now(t.Context()))(t)
			var docs []any
			for i := range one.others {
				docs = append(docs, bson.D{field("_id", i), field("n", i), field("at", at)})
			}
			insert(t, coll, append(docs, bson.D{field("_id", "b"), field("n", "b"), field("at", at),
				field("kind", "b")})...)
			ask := &rows.Ask{Due: at}
			sent.take()
			if _, _, err := store.Candidates(t.Context(), 1, 0, ask); err != nil {
				t.Fatal(err)
			}
			c := rows.Claim{Slot: "s", Session: bson.NewObjectID(), Batch: bson.NewObjectID()}
			if row, err := store.MarkOne(t.Context(), c, ask); err != nil || row == nil {
				t.Fatal(row, err)
			}
			assert.Value(store.Later(t.Context(), at, 10))(t)
			assert.Value(store.Depth(t.Context(), at, 10))(t)
			for _, command := range sent.take() {
				if strings.Contains(fmt.Sprint(command), "retrying") {
					continue // in another order
				}
				plan := explained(t, coll.Database(), command)
				won := plan.Lookup("queryPlanner", "winningPlan").String()
				used := fmt.Sprintf(`"indexName":%q`, one.want)
				if !strings.Contains(strings.ReplaceAll(won, `": `, `":`), used) {
					t.Errorf("%s: %v does not use %s: %s", one.name, command[0].Key, one.want, won)
				}
			}
		}
	})
}
