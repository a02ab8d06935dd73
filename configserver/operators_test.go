package configserver_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
)

// A countdown calls do when the given number of commands has started.
type countdown struct {
	mu   sync.Mutex // guards left
	left int
	do   func()
}

func (c *countdown) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(context.Context, *event.CommandStartedEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.left--; c.left == 0 {
			c.do()
		}
	}}
}

// The front supports each server feature that the lock needs.
func TestFront_WhatTheLockNeeds_Works(t *testing.T) {
	t.Parallel()
	db := connect(t, start(t, configserver.Config{}).URI()).Database("config")
	after := options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)

	t.Run("upsert with $set, $inc, $currentDate", func(t *testing.T) {
		c := db.Collection("acquire")
		filter := bson.D{{Key: "_id", Value: "balancer"}, {Key: "state", Value: 0}}
		update := bson.D{
			{Key: "$set", Value: d("state", 1)},
			{Key: "$inc", Value: d("fence", int64(1))},
			{Key: "$currentDate", Value: d("when", true)},
		}
		var got struct {
			State int32
			Fence int64
			When  time.Time
		}
		err := c.FindOneAndUpdate(t.Context(), filter, update, after).Decode(&got)
		if err != nil || got.State != 1 || got.Fence != 1 || got.When.IsZero() {
			t.Errorf("got %+v, %v", got, err)
		}
		err = c.FindOneAndUpdate(t.Context(), filter, update, after).Err()
		if !mongo.IsDuplicateKeyError(err) {
			t.Errorf("held: got %v, want a duplicate key", err)
		}
	})
	t.Run("$max", func(t *testing.T) {
		c := db.Collection("max")
		insert(t, c, bson.D{{Key: "_id", Value: "a"}, {Key: "fence", Value: int64(5)}})
		for _, step := range []struct{ to, want int64 }{{3, 5}, {9, 9}} {
			var got struct{ Fence int64 }
			err := c.FindOneAndUpdate(t.Context(), byID("a"), d("$max", d("fence", step.to)), after).
				Decode(&got)
			if err != nil || got.Fence != step.want {
				t.Errorf("$max %d gives %d, %v", step.to, got.Fence, err)
			}
		}
	})
	t.Run("filters", func(t *testing.T) { testFilters(t, db.Collection("filters")) })
	t.Run("$match, $group, $sum", func(t *testing.T) { testGroup(t, db.Collection("group")) })
	t.Run("indexes", func(t *testing.T) { testIndexes(t, db.Collection("indexes")) })
	t.Run("hello.localTime", func(t *testing.T) {
		var hello struct{ LocalTime time.Time }
		err := db.RunCommand(t.Context(), d("hello", 1)).Decode(&hello)
		if err != nil || hello.LocalTime.IsZero() {
			t.Errorf("got %v, %v", hello.LocalTime, err)
		}
	})
	t.Run("unacknowledged write", func(t *testing.T) { testSilent(t, db) })
	t.Run("delete many", func(t *testing.T) {
		c := db.Collection("delete")
		insert(t, c, byID("a"), byID("b"), byID("c"))
		res, err := c.DeleteMany(t.Context(), d("_id", d("$in", bson.A{"a", "c"})))
		if err != nil || res.DeletedCount != 2 {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

func testSilent(t *testing.T, db *mongo.Database) {
	t.Helper()
	c := db.Collection("silent")
	silent := db.Collection("silent",
		options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	for i := range 20 {
		res, err := silent.InsertOne(t.Context(), d("_id", i))
		if err != nil || res.Acknowledged {
			t.Fatalf("got %+v, %v", res, err)
		}
	}
	// The replies to unacknowledged writes do not reach other commands on the same connection. The
	// number of executed writes is not known.
	insert(t, c, byID("acknowledged"))
	if n, err := c.CountDocuments(t.Context(), byID("acknowledged")); err != nil || n != 1 {
		t.Errorf("got %d, %v", n, err)
	}
}

func insert(t *testing.T, c *mongo.Collection, documents ...bson.D) {
	t.Helper()
	assert.Value(c.InsertMany(t.Context(), documents))(t)
}

func testFilters(t *testing.T, c *mongo.Collection) {
	t.Helper()
	insert(t, c,
		bson.D{{Key: "_id", Value: "a"}, {Key: "state", Value: 0}},
		bson.D{{Key: "_id", Value: "b"}, {Key: "state", Value: 1}, {Key: "condemned", Value: bson.D{}}},
		bson.D{{Key: "_id", Value: "c"}, {Key: "state", Value: 2.0}, {Key: "ts", Value: nil},
			{Key: "waiters", Value: bson.A{d("process", "p")}}},
	)
	at := bson.NewDateTimeFromTime(time.Unix(1_700_000_000, 0))
	insert(t, c, bson.D{{Key: "_id", Value: "d"}, {Key: "ping", Value: at}})
	for _, row := range []struct {
		name   string
		filter bson.D
		want   int64
	}{
		{"$exists false", d("condemned", d("$exists", false)), 3},
		{"$exists true", d("condemned", d("$exists", true)), 1},
		{"$gt", d("state", d("$gt", 0)), 2},
		{"$lt of a date", d("ping", d("$lt", at+1)), 1},
		{"$in", d("_id", d("$in", bson.A{"a", "b", "x"})), 2},
		{"$nin", d("_id", d("$nin", bson.A{"a", "b", "x"})), 2},
		{"$ne", d("state", d("$ne", 0)), 3},
		{"$type", d("state", d("$type", "number")), 3},
		{"$or", d("$or", bson.A{d("state", 0), d("state", 1)}), 2},
		{"$and", d("$and", bson.A{d("state", d("$gt", 0)), d("_id", "b")}), 1},
		{"null matches what is absent", d("ts", nil), 4},
		{"field of an array's document", d("waiters.process", "p"), 1},
		{"a number of another type", d("state", int64(2)), 1},
	} {
		if n, err := c.CountDocuments(t.Context(), row.filter); err != nil || n != row.want {
			t.Errorf("count, %s: %d, %v, want %d", row.name, n, err, row.want)
		}
		found, err := c.Find(t.Context(), row.filter)
		if err != nil {
			t.Errorf("find, %s: %v", row.name, err)
			continue
		}
		var all []bson.Raw
		if err := found.All(t.Context(), &all); err != nil || int64(len(all)) != row.want {
			t.Errorf("find, %s: %d, %v, want %d", row.name, len(all), err, row.want)
		}
	}
}

func testGroup(t *testing.T, c *mongo.Collection) {
	t.Helper()
	for fence := range int64(5) {
		insert(t, c, bson.D{
			{Key: "process", Value: "p"}, {Key: "state", Value: 1}, {Key: "fence", Value: fence << 33},
		})
	}
	cursor, err := c.Aggregate(t.Context(), mongo.Pipeline{
		d("$match", bson.D{{Key: "process", Value: "p"}, {Key: "state", Value: d("$gt", 0)}}),
		d("$group", bson.D{
			{Key: "_id", Value: nil},
			{Key: "fences", Value: d("$sum", "$fence")},
		}),
	})
	assert.Must(t, err)
	var got []struct{ Fences int64 }
	assert.Must(t, cursor.All(t.Context(), &got))
	if len(got) != 1 || got[0].Fences != 10<<33 {
		t.Errorf("got %+v", got)
	}
}

// FerretDB returns these wrong results without an error. Users must know them.
func TestFront_WhatFerretDBGetsWrong_IsStillSo(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, configserver.Config{}).URI()).Database("config").Collection("locks")
	insert(t, c, bson.D{{Key: "fence", Value: 7}}, bson.D{{Key: "fence", Value: 8}})
	one := func(stage bson.D) bson.Raw {
		cursor := assert.Value(c.Aggregate(t.Context(), mongo.Pipeline{stage}))(t)
		var got []bson.Raw
		if err := cursor.All(t.Context(), &got); err != nil || len(got) == 0 {
			t.Fatal(got, err)
		}
		return got[0]
	}
	// The first accumulator of $group uses up the documents, so the second one gets none.
	got := one(d("$group", bson.D{
		{Key: "_id", Value: nil},
		{Key: "count", Value: d("$sum", 1)},
		{Key: "fences", Value: d("$sum", "$fence")},
	}))
	if got.Lookup("count").Int32() != 2 || got.Lookup("fences").Int32() != 0 {
		t.Errorf("two accumulators give %v", got)
	}
	// FerretDB treats $$NOW as a string.
	if now, ok := one(d("$addFields", d("now", "$$NOW"))).Lookup("now").StringValueOK(); !ok {
		t.Errorf("$$NOW gives %v", now)
	}
}

func testIndexes(t *testing.T, c *mongo.Collection) {
	t.Helper()
	for range 2 { // the second call finds the index
		assert.Value(c.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: d("ping", 1)}))(t)
	}
	specs, err := c.Indexes().ListSpecifications(t.Context())
	if err != nil || len(specs) != 2 {
		t.Errorf("got %+v, %v", specs, err)
	}
}

// FerretDB does not support these features. The test fails if a newer version supports one.
func TestFront_WhatFerretDBCannot_Fails(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, configserver.Config{}).URI())
	c := client.Database("config").Collection("locks")
	insert(t, c, bson.D{{Key: "_id", Value: "a"}, {Key: "state", Value: 1}})
	lookup := d("$lookup", bson.D{
		{Key: "from", Value: "lockpings"}, {Key: "as", Value: "ping"},
		{Key: "localField", Value: "process"}, {Key: "foreignField", Value: "_id"},
	})
	for name, try := range map[string]func() error{
		"update with a pipeline": func() error {
			return assert.Err(c.UpdateOne(t.Context(), byID("a"), mongo.Pipeline{d("$set", d("state", 0))}))
		},
		"$lookup": func() error {
			return assert.Err(c.Aggregate(t.Context(), mongo.Pipeline{lookup}))
		},
		"$expr in a filter": func() error {
			return c.FindOne(t.Context(), d("$expr", d("$gt", bson.A{"$state", 0}))).Err()
		},
		"change stream": func() error {
			return assert.Err(c.Watch(t.Context(), mongo.Pipeline{}))
		},
		"transaction": func() error {
			s, err := client.StartSession()
			if err != nil {
				return err
			}
			defer s.EndSession(t.Context())
			_, err = s.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
				return nil, c.FindOne(ctx, byID("a")).Err()
			})
			return err
		},
	} {
		if err := try(); err == nil {
			t.Errorf("%s works", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}
