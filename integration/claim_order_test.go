package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// It tries to break: rows are asked for in an order, and the planner takes another index that has them
// so, that of _id or one of the user's, with which all that is done is read past. The index that the
// queue has made is named, or a longer one of the user's that begins as it does.
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
			client := privateClient(t, options.Client().ApplyURI(w.d.uri).SetMonitor(sent.monitor()))
			coll := w.rowsOf(t, client)
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
			insert(t, coll, append(docs, bson.D{field("_id", "b"), field("n", "b"), field("at", at), field("kind", "b")})...)
			ask := &rows.Ask{Due: at}
			sent.take()
			if _, _, err := store.Candidates(t.Context(), 1, 0, ask); err != nil {
				t.Fatal(err)
			}
			if row, err := store.MarkOne(t.Context(), rows.Claim{Slot: "s", Session: bson.NewObjectID(), Batch: bson.NewObjectID()},
				ask); err != nil || row == nil {
				t.Fatal(row, err)
			}
			assert.Value(store.Later(t.Context(), at, 10))(t)
			assert.Value(store.Depth(t.Context(), at, 10))(t)
			for _, command := range sent.take() {
				if strings.Contains(fmt.Sprint(command), "retrying") {
					continue // in another order
				}
				var plan bson.Raw
				assert.Must(t, coll.Database().RunCommand(t.Context(), bson.D{field("explain", command)}).Decode(&plan))
				won := plan.Lookup("queryPlanner", "winningPlan").String()
				if !strings.Contains(won, fmt.Sprintf("%q: %q", "indexName", one.want)) && !strings.Contains(won, fmt.Sprintf("%q:%q", "indexName", one.want)) {
					t.Errorf("%s: %v does not use %s: %s", one.name, command[0].Key, one.want, won)
				}
			}
		}
	})
}
