package mongocatalog_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"pgregory.net/rapid"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

// serverStore returns a store on the server, and the server's description.
func serverStore(t *testing.T) (*mongocatalog.Catalog, *mongo.Database, catalog.Server) {
	t.Helper()
	client := connect(t)
	db := database(t, client)
	c, err := mongocatalog.New(client, mongocatalog.Options{
		Database: db.Name(), CommandTimeout: 20 * time.Second,
	})
	assert.Must(t, err)
	s := assert.Value(c.Hello(t.Context()))(t)
	return c, db, s
}

// The pipelines agree with package transition on a server. The evaluator could have the same
// mistakes as the pipelines.
func TestPipeline_OnServer_AnyDocument_DoesAsPackageTransition(t *testing.T) {
	t.Parallel()
	_, db, s := serverStore(t)
	if !s.PipelineUpdates {
		t.Skip("this server has no pipeline updates")
	}
	run := func(doc, filter bson.D, pipeline bson.A, upsert bool) (bson.D, bool, time.Time, error) {
		return served(t.Context(), db.Collection("locks"), doc, filter, pipeline, upsert)
	}
	rapid.Check(t, func(t *rapid.T) {
		walk(t, run)
		live(t, run, 12, map[string]int{})
	})
}

// served is a runner on a server. An additional field returns the server's clock.
func served(ctx context.Context, locks *mongo.Collection, doc, filter bson.D, pipeline bson.A,
	upsert bool) (after bson.D, ok bool, now time.Time, err error) {
	if _, err := locks.DeleteMany(ctx, bson.D{}); err != nil {
		return nil, false, now, err
	}
	if doc != nil {
		if _, err := locks.InsertOne(ctx, doc); err != nil {
			return nil, false, now, err
		}
	}
	clock := bson.D{e("$set", bson.D{e("now", "$$NOW")})}
	reply, err := locks.Database().RunCommand(ctx, bson.D{
		e("findAndModify", locks.Name()), e("query", filter), e("upsert", upsert), e("new", true),
		e("update", append(append(bson.A{}, pipeline...), clock)),
	}).Raw()
	if mongo.IsDuplicateKeyError(err) {
		return doc, false, now, nil
	}
	if err != nil {
		return nil, false, now, err
	}
	raw, ok := reply.Lookup("value").DocumentOK()
	if !ok {
		return doc, false, now, nil
	}
	if err := bson.Unmarshal(raw, &after); err != nil {
		return nil, false, now, err
	}
	ms, _ := raw.Lookup("now").DateTimeOK()
	return remove(after, []string{"now"}), true, time.UnixMilli(ms).UTC(), nil
}

// transaction runs work in a transaction, with the driver's retry loop.
func transaction(t *testing.T, db *mongo.Database, work func(context.Context) error) error {
	t.Helper()
	session, err := db.Client().StartSession()
	assert.Must(t, err)
	defer session.EndSession(context.WithoutCancel(t.Context()))
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		return nil, work(ctx)
	})
	return err
}

func needTransactions(t *testing.T) (*mongocatalog.Catalog, *mongo.Database) {
	t.Helper()
	c, db, s := serverStore(t)
	if !s.Transactions {
		t.Skip("this server has no transactions")
	}
	for _, name := range []string{"work", "locks"} {
		assert.Must(t, db.CreateCollection(t.Context(), name))
	}
	return c, db
}

func TestCatalog_OnServer_EnterTransaction_FreeAfterwardsWithAHigherFence(t *testing.T) {
	t.Parallel()
	c, db := needTransactions(t)
	r := request()
	before := int64(0)
	for _, planted := range []bool{false, true, true} { // with and without a document
		var inside catalog.Lock
		err := transaction(t, db, func(ctx context.Context) (err error) {
			inside, err = c.EnterTransaction(ctx, r)
			return err
		})
		if err != nil || inside.Held || inside.Fence <= before || inside.Who != r.Who {
			t.Fatalf("document there: %v: %+v, %v", planted, inside, err)
		}
		after, err := c.Read(t.Context(), r.Name)
		if err != nil || after.Held || after.Fence != inside.Fence || after.TS != r.TS {
			t.Fatalf("after the transaction: %+v, %v", after, err)
		}
		before = inside.Fence
	}
	if l, err := on(c).Enter(t.Context(), r, catalog.Try); err != nil || l.Fence <= before {
		t.Errorf("the next holder's fence must be above %d: %+v, %v", before, l, err)
	}
}

func TestCatalog_OnServer_EnterTransaction_HeldOrWaitedFor_TransactionLivesOn(t *testing.T) {
	t.Parallel()
	c, db := needTransactions(t)
	holder, waiter := enter(1, "", 0, 0).Request, enter(2, "", 0, 0)
	damaged := bson.D{e("_id", "damaged"), e("state", "free")}
	left := bson.D{e("_id", "left"), e("state", int32(0)), e("waiters", bson.A{entry(waiter)})}
	for _, doc := range []bson.D{damaged, left} {
		assert.Value(db.Collection("locks").InsertOne(t.Context(), doc))(t)
	}
	assert.Value(on(c).Enter(t.Context(), holder, catalog.Queue))(t)
	err := transaction(t, db, func(ctx context.Context) error {
		for name, want := range map[string]error{
			"x": catalog.ErrNotFree, "left": catalog.ErrNotFree, "damaged": catalog.ErrMalformed,
		} {
			r := request()
			r.Name = name
			if _, err := c.EnterTransaction(ctx, r); !errors.Is(err, want) {
				t.Errorf("%s: want %v, got %v", name, want, err)
			}
		}
		_, err := db.Collection("work").InsertOne(ctx, bson.D{e("_id", "done")})
		return err
	})
	assert.Must(t, err, "the transaction did not live on")
	if n, err := db.Collection("work").CountDocuments(t.Context(), bson.D{}); err != nil || n != 1 {
		t.Errorf("%d documents, %v", n, err)
	}
}

// Many transactions exclude each other when each reads a number and writes its successor. A
// conflict reaches the driver's loop.
func TestCatalog_OnServer_EnterTransaction_ManyAtOnce_OneAtATime(t *testing.T) {
	t.Parallel()
	c, db := needTransactions(t)
	const each, loops = 5, 4
	work := db.Collection("work")
	assert.Value(work.InsertOne(t.Context(), bson.D{e("_id", "n"), e("n", int32(0))}))(t)
	errs := make([]error, loops)
	var looping sync.WaitGroup
	for i := range loops {
		looping.Go(func() {
			for range each {
				r := request()
				r.TS = bson.NewObjectID()
				errs[i] = errors.Join(errs[i], transaction(t, db, func(ctx context.Context) error {
					if _, err := c.EnterTransaction(ctx, r); err != nil {
						return err
					}
					_, err := work.UpdateByID(ctx, "n", bson.D{e("$inc", bson.D{e("n", int32(1))})})
					return err
				}))
			}
		})
	}
	looping.Wait()
	raw, err := work.FindOne(t.Context(), bson.D{e("_id", "n")}).Raw()
	if n := raw.Lookup("n").Int32(); n != each*loops || errors.Join(append(errs, err)...) != nil {
		t.Errorf("want %d, got %d, %v", each*loops, n, errors.Join(append(errs, err)...))
	}
}

func TestCatalog_OnServer_EnterTransaction_KeepsAnAcquisitionAway(t *testing.T) {
	t.Parallel()
	c, db := needTransactions(t)
	inside, taken, fence := request(), error(nil), int64(0)
	err := transaction(t, db, func(ctx context.Context) error {
		l, err := c.EnterTransaction(ctx, inside)
		if err != nil {
			return err
		}
		fence = l.Fence
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		g := enter(3, catalog.Exclusive, 0, 0).Request
		g.Name = inside.Name
		_, taken = on(c).Enter(short, g, catalog.Try)
		return nil
	})
	if err != nil || taken == nil {
		t.Fatalf("entered beside an open transaction: %v, %v", taken, err)
	}
	after := enter(4, catalog.Exclusive, 0, 0).Request
	after.Name = inside.Name
	if l, err := on(c).Enter(t.Context(), after, catalog.Queue); err != nil || l.Fence <= fence {
		t.Errorf("%+v, %v", l, err)
	}
}

func needNotices(t *testing.T) (*mongocatalog.Catalog, *mongo.Database, catalog.GrantStream) {
	t.Helper()
	c, db, s := serverStore(t)
	n, err := c.GrantStream(t.Context(), "process-2")
	if !s.ChangeStreams {
		assert.Is(t, err, catalog.ErrNoGrantStream)
		t.Skip("this server has no change streams")
	}
	assert.Must(t, err)
	t.Cleanup(func() { n.Close(context.Background()) })
	return c, db, n
}

func TestCatalog_OnServer_Notices_DroppedCollectionEndsTheStream(t *testing.T) {
	t.Parallel()
	c, db, n := needNotices(t)
	assert.Value(on(c).Enter(t.Context(), request(), catalog.Queue))(t)
	assert.Must(t, db.Collection("locks").Drop(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if grants, err := n.Next(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("want the end of the stream, got %v, %v", grants, err)
	}
}

// A grant is reported once, even by MongoDB 4.4, which repeats the whole document for each new
// waiter.
func TestCatalog_OnServer_Notices_OneGrantIsToldOnce(t *testing.T) {
	t.Parallel()
	c, _, n := needNotices(t)
	for i := range 4 { // the second session is granted the lock, and two more wait
		r := enter(byte(i+1), "", 0, 0).Request
		assert.Value(on(c).Enter(t.Context(), r, catalog.Queue))(t)
		if i == 1 {
			assert.Value(on(c).Leave(t.Context(), leave(1).Session))(t)
		}
	}
	other := enter(2, "", 0, 0).Request
	other.Name = "other"
	assert.Value(on(c).Enter(t.Context(), other, catalog.Queue))(t)
	for _, want := range []string{"x", "other"} {
		grants, err := n.Next(t.Context())
		if err != nil || len(grants) != 1 || grants[0].Name != want || grants[0].TS != id(2) {
			t.Fatalf("want one grant of %s, got %+v, %v", want, grants, err)
		}
	}
}
