package configserver_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/configserver"
)

func TestX(t *testing.T) {
	c := connect(t, start(t, configserver.Config{}).URI()).Database("config").Collection("x")
	insert(t, c, bson.D{{"_id", "a"}, {"p", 1}, {"fence", int64(1) << 33}}, bson.D{{"_id", "b"}, {"p", 1}, {"fence", int64(2) << 33}}, bson.D{{"_id", "c"}, {"p", 1}, {"fence", int64(2)}})
	for _, p := range []mongo.Pipeline{
		{d("$addFields", d("now", "$$NOW"))},
		{d("$group", bson.D{{"_id", nil}, {"n", d("$sum", 1)}, {"f", d("$sum", "$fence")}})},
		{d("$group", bson.D{{"_id", nil}, {"f", d("$sum", "$fence")}})},
		{d("$group", bson.D{{"_id", nil}, {"f", d("$sum", "$fence")}, {"n", d("$sum", 1)}})},
		{d("$group", bson.D{{"_id", "$p"}, {"f", d("$sum", "$fence")}, {"n", d("$count", bson.D{})}})},
		{d("$group", bson.D{{"_id", "$p"}, {"n", d("$count", bson.D{})}, {"f", d("$sum", "$fence")}})},
		{d("$count", "n")},
	} {
		cur, err := c.Aggregate(t.Context(), p)
		if err != nil {
			t.Log(p, err)
			continue
		}
		var r []bson.Raw
		err = cur.All(t.Context(), &r)
		t.Log(p, r, err)
	}
}
