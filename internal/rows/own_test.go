package rows

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/assert"
)

// What a filter says of documents is said of the documents of events, or nothing is.
func TestOwn_FiltersOfAllKinds(t *testing.T) {
	t.Parallel()
	d := func(key string, value any) bson.D { return bson.D{e(key, value)} }
	for _, one := range []struct{ filter, want bson.D }{
		{d("kind", "mail"), d("x.kind", "mail")},
		{bson.D{e("a.b", d("$gt", 1)), e("c", nil)}, bson.D{e("x.a.b", d("$gt", 1)), e("x.c", nil)}},
		{d("$or", bson.A{d("a", 1), d("$and", bson.A{d("b", d("$not", d("$in", bson.A{2, 3})))})}),
			d("$or", bson.A{d("x.a", 1), d("$and", bson.A{d("x.b", d("$not", d("$in", bson.A{2, 3})))})})},
		{d("$expr", d("$gt", bson.A{"$a", "$b"})), nil},
		{d("$where", "true"), nil},
		{d("$or", bson.A{d("a", 1), d("$expr", true)}), nil},
		{d("$or", bson.A{}), nil},
		{d("at", d("$near", bson.A{1, 2})), nil},
		{d("at", d("$not", d("$near", bson.A{1, 2}))), nil},
	} {
		raw := assert.Value(bson.Marshal(one.filter))(t)
		got, ok := within("x.", raw)
		a, _ := bson.MarshalExtJSON(got, false, false)
		b, _ := bson.MarshalExtJSON(one.want, false, false)
		if ok != (one.want != nil) || ok && string(a) != string(b) {
			t.Errorf("%v is %s, %v, want %s", one.filter, a, ok, b)
		}
	}
}
