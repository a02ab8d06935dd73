package integration_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// It tries to break: what a process reads to look after its own rows grows with those that others
// have claimed. Neither it nor who looks after the rows of all reads a document of another; the latter reads
// keys of the index, two or three of each claimed row.
func TestClaim_RowsOfOthers_AreNotRead(t *testing.T) {
	inTurn(t, named("standalone", "mongos"), func(t *testing.T, w *world) {
		const own, others, each = 20, 100, 20
		var sent tape
		client := privateClient(t, options.Client().ApplyURI(w.d.uri).SetMonitor(sent.monitor()))
		coll := w.rowsOf(t, client)
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
					var plan bson.Raw
					if err := coll.Database().RunCommand(t.Context(), bson.D{field("explain", one),
						field("verbosity", "executionStats")}).Decode(&plan); err != nil {
						t.Fatalf("explain %v: %v", one, err)
					}
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
					_, err := store.Tidy(ctx, time.Now(), slot, 7, 10)
					return err
				},
				"batches": func(ctx context.Context) error {
					_, err := store.Batches(ctx, slot, session)
					return err
				},
				"slots":  func(ctx context.Context) error { _, err := store.Slots(ctx); return err },
				"odd":    func(ctx context.Context) error { _, err := store.Odd(ctx); return err },
				"leased": func(ctx context.Context) error { _, err := store.Leased(ctx); return err },
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
