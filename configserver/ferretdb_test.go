package configserver_test

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
)

func insert(t *testing.T, c *mongo.Collection, documents ...bson.D) {
	t.Helper()
	assert.Value(c.InsertMany(t.Context(), documents))(t)
}

// FerretDB returns two wrong results without an error. The test fails if a newer version corrects
// one of them.
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
	// The first accumulator of $group receives all documents. The second one receives no document.
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

// FerretDB returns an error for each unsupported feature. The test fails if a newer version
// supports one of these features.
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
