package integration_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/rowstest"
)

// It tries to break: what people and programs do to a document makes a row ready, or takes it, and
// the stream does not tell; or it tells of what changes nothing.
func TestClaim_Stream_EditsByHand(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		store := rows.NewMongo(coll, "claim", nil, nil)
		assert.Value(coll.InsertOne(t.Context(), bson.D{field("_id", "r"), inState("dead")}))(t)
		told := rowstest.Listen(t, store)
		for _, one := range []struct {
			name   string
			change bson.D
			kind   string
		}{
			{"made ready", set(field("claim.state", "ready")), "arrived"},
			{"another field", set(field("n.state", 1), field("claim.error", "no")), ""},
			{"made dead", set(field("claim.state", "dead")), ""},
			{"field removed", bson.D{field("$unset", bson.D{field("claim", "")})}, "arrived"},
			{"another removed", bson.D{field("$unset", bson.D{field("n", "")})}, ""},
			{"field set done", set(inState("done")), ""},
			{"field set ready", set(field("claim", bson.D{field("state", "ready"), field("n", 1)})),
				"arrived"},
			{"field set claimed", set(inState("claimed")), "taken"},
			{"field set empty", set(field("claim", bson.D{})), "arrived"},
			{"replaced", bson.D{field("_id", "r"), field("n", 2)}, "arrived"},
			{"replaced, claimed", bson.D{field("_id", "r"), inState("claimed")}, "taken"},
			{"replaced, done", bson.D{field("_id", "r"), inState("done")}, ""},
		} {
			var err error
			if one.change[0].Key == "_id" {
				_, err = coll.ReplaceOne(t.Context(), byID("r"), one.change, options.Replace())
			} else {
				_, err = coll.UpdateOne(t.Context(), byID("r"), one.change)
			}
			if err != nil {
				t.Fatal(one.name, err)
			}
			if one.kind != "" {
				told.Want(one.name, one.kind, `"r"`)
			}
		}
	})
}

// It tries to break: the stream of a queue tells of rows that another one has in the collection,
// which then asks for them in vain; or it does not tell of its own.
func TestClaim_Stream_TellsOfRowsOfItsOwn(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		several := bson.D{field("n", bson.D{field("$gt", 1)})}
		told := rowstest.Listen(t, rows.NewMongo(coll, "claim", bson.D{field("kind", "b"),
			field("$or", bson.A{bson.D{field("n", nil)}, several})}, nil))
		row := func(id, kind string, more ...bson.E) bson.D {
			return append(bson.D{field("_id", id), field("kind", kind)}, more...)
		}
		insert(t, coll, row("1", "a"), row("2", "b"), row("3", "b", field("n", 1)),
			row("4", "b", field("n", 2)))
		told.Want("insert", "arrived", `"2"`, "arrived", `"4"`)
		assert.Value(coll.ReplaceOne(t.Context(), byID("1"), bson.D{field("kind", "b")}))(t)
		told.Want("replaced", "arrived", `"1"`)
	})
}
