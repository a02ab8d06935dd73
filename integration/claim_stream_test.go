package integration_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/rowstest"
)

// It tries to break: what people and programs do to a document makes a row ready, or takes it, and
// the stream does not tell; or it tells of what changes nothing.
func TestClaim_Stream_EditsByHand(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		store := rows.NewMongo(coll, "claim", nil, nil)
		if _, err := coll.InsertOne(t.Context(), bson.D{field("_id", "r"), field("claim", bson.D{field("state", "dead")})}); err != nil {
			t.Fatal(err)
		}
		told := rowstest.Listen(t, store)
		for _, one := range []struct {
			name   string
			change bson.D
			kind   string
		}{
			{"made ready", bson.D{field("$set", bson.D{field("claim.state", "ready")})}, "arrived"},
			{"another field", bson.D{field("$set", bson.D{field("n.state", 1), field("claim.error", "no")})}, ""},
			{"made dead", bson.D{field("$set", bson.D{field("claim.state", "dead")})}, ""},
			{"field removed", bson.D{field("$unset", bson.D{field("claim", "")})}, "arrived"},
			{"another removed", bson.D{field("$unset", bson.D{field("n", "")})}, ""},
			{"field set done", bson.D{field("$set", bson.D{field("claim", bson.D{field("state", "done")})})}, ""},
			{"field set ready", bson.D{field("$set", bson.D{field("claim", bson.D{field("state", "ready"), field("n", 1)})})}, "arrived"},
			{"field set claimed", bson.D{field("$set", bson.D{field("claim", bson.D{field("state", "claimed")})})}, "taken"},
			{"field set empty", bson.D{field("$set", bson.D{field("claim", bson.D{})})}, "arrived"},
			{"replaced", bson.D{field("_id", "r"), field("n", 2)}, "arrived"},
			{"replaced, claimed", bson.D{field("_id", "r"), field("claim", bson.D{field("state", "claimed")})}, "taken"},
			{"replaced, done", bson.D{field("_id", "r"), field("claim", bson.D{field("state", "done")})}, ""},
		} {
			var err error
			if one.change[0].Key == "_id" {
				_, err = coll.ReplaceOne(t.Context(), bson.D{field("_id", "r")}, one.change, options.Replace())
			} else {
				_, err = coll.UpdateOne(t.Context(), bson.D{field("_id", "r")}, one.change)
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

// It tries to break: the stream of a queue tells of rows that another one has in the collection, which
// then asks for them in vain; or it does not tell of its own.
func TestClaim_Stream_TellsOfRowsOfItsOwn(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		told := rowstest.Listen(t, rows.NewMongo(coll, "claim", bson.D{field("kind", "b"),
			field("$or", bson.A{bson.D{field("n", nil)}, bson.D{field("n", bson.D{field("$gt", 1)})}})}, nil))
		insert(t, coll, bson.D{field("_id", "1"), field("kind", "a")}, bson.D{field("_id", "2"), field("kind", "b")},
			bson.D{field("_id", "3"), field("kind", "b"), field("n", 1)}, bson.D{field("_id", "4"), field("kind", "b"), field("n", 2)})
		told.Want("insert", "arrived", `"2"`, "arrived", `"4"`)
		if _, err := coll.ReplaceOne(t.Context(), bson.D{field("_id", "1")}, bson.D{field("kind", "b")}); err != nil {
			t.Fatal(err)
		}
		told.Want("replaced", "arrived", `"1"`)
	})
}
