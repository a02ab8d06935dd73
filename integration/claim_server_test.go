package integration_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/claim"
	"mongodlm/internal/test/assert"
)

// It tries to break: the index that says which rows come first is being built: it is listed, and
// the server refuses its name. New and Run wait for it, and end with no error. Not in parallel: the
// server builds no index meanwhile.
func TestClaim_IndexBeingBuilt_IsWaitedFor(t *testing.T) {
	inTurn(t, named("standalone"), func(t *testing.T, w *world) {
		var sent counter
		ctx, coll := t.Context(), w.rowsOf(t, w.client(t, &sent))
		cfg := claim.Config{Sort: bson.D{field("n", 1)}}
		insert(t, coll, job{ID: 1}, job{ID: 2})
		assert.Must(t, claim.CreateIndexes(ctx, coll, cfg))
		// whileBuilt ends the build when what was begun has asked in vain a few times by this command.
		whileBuilt := func(command string, begin func()) {
			t.Helper()
			hang := func(mode string) {
				t.Helper()
				assert.Must(t, w.d.app.Database("admin").RunCommand(ctx, bson.D{
					field("configureFailPoint", "hangAfterStartingIndexBuild"), field("mode", mode)}).Err())
			}
			indexes := w.db.Collection(coll.Name()).Indexes()
			assert.Must(t, indexes.DropOne(ctx, "claim.state_1_n_1"))
			defer hang("off") // also when the test ends here
			hang("alwaysOn")
			built := make(chan error, 1)
			go func() {
				built <- assert.Err(indexes.CreateOne(ctx, mongo.IndexModel{
					Keys: bson.D{field("claim.state", 1), field("n", 1)}}))
			}()
			eventually(t, standstill, "the index is listed", func() bool {
				missing, err := claim.MissingIndexes(ctx, coll, cfg)
				return err == nil && len(missing) == 0
			})
			sent.reset()
			begin()
			progress(t, "the server is asked in vain", 5, func() int {
				return sent.all()[command+" "+coll.Name()]
			})
			hang("off")
			assert.Must(t, <-built)
		}
		m := w.patient(t)
		opened := make(chan error, 1)
		whileBuilt("find", func() {
			go func() { opened <- assert.Err(claim.New[job](ctx, m, coll, cfg)) }()
		})
		assert.Must(t, <-opened)
		q, stop := w.claims(t, m, coll, cfg), func() {}
		whileBuilt("findAndModify", func() {
			stop = runs(t, q, func(context.Context, *claim.Row[job]) error { return nil })
		})
		wantCounts(t, q, standstill, claim.Counts{Done: 2})
		stop()
	})
}

// It tries to break: a server refuses buildInfo to a client that is bound to API version 1, and the
// indexes of a queue are not made. Not in parallel: a server has one such fail point.
func TestClaim_BuildInfoRefused_IndexesAreMade(t *testing.T) {
	inTurn(t, named("standalone"), func(t *testing.T, w *world) {
		app := "strict-" + bson.NewObjectID().Hex()
		client := privateClient(t, options.Client().ApplyURI(w.d.uri).SetAppName(app))
		ctx, coll, admin := t.Context(), w.rowsOf(t, client), w.d.app.Database("admin")
		assert.Must(t, admin.RunCommand(ctx, bson.D{field("configureFailPoint", "failCommand"),
			field("mode", "alwaysOn"), field("data", bson.D{field("failCommands", bson.A{"buildInfo"}),
				field("errorCode", 323), field("appName", app)})}).Err())
		refused := client.Database("admin").RunCommand(ctx, bson.D{field("buildInfo", 1)}).Err()
		assert.NoErr(t, claim.CreateIndexes(ctx, coll, claim.Config{}))
		assert.Must(t, admin.RunCommand(ctx, bson.D{field("configureFailPoint", "failCommand"),
			field("mode", "off")}).Err())
		missing := assert.Value(claim.MissingIndexes(ctx, coll, claim.Config{}))(t)
		if refused == nil || len(missing) > 0 {
			t.Errorf("buildInfo: %v; missing %q", refused, missing)
		}
	})
}
