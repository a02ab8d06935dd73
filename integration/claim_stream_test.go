package integration_test

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/rowstest"
)

// The change stream of a queue reports an edit by hand only if the edit makes a row ready or
// claimed.
func TestClaim_Stream_EditsByHand(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		coll := w.rowsOf(t, w.d.app)
		store := rows.NewMongo(coll, rows.Options{Field: "claim"})
		assert.Value(coll.InsertOne(t.Context(), bson.D{field("_id", 7), inState("dead")}))(t)
		events := rowstest.Listen(t, store)
		for _, one := range []struct {
			name   string
			change bson.D
			kind   rows.EventKind
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
			{"replaced", bson.D{field("_id", 7), field("n", 2)}, "arrived"},
			{"replaced, claimed", bson.D{field("_id", 7), inState("claimed")}, "taken"},
			{"replaced, done", bson.D{field("_id", 7), inState("done")}, ""},
		} {
			var err error
			if one.change[0].Key == "_id" {
				_, err = coll.ReplaceOne(t.Context(), byID(7), one.change, options.Replace())
			} else {
				_, err = coll.UpdateOne(t.Context(), byID(7), one.change)
			}
			if err != nil {
				t.Fatal(one.name, err)
			}
			if one.kind != "" {
				events.Want(one.name, one.kind, 7, time.Time{})
			}
		}
	})
}
