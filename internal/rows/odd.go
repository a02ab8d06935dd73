package rows

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// oddAtOnce is how many odd rows are read at a time.
const oddAtOnce = 10

// Odd is documented in [Store].
func (m *Mongo) Odd(ctx context.Context) ([]Malformed, error) {
	known := bson.A{nil, Ready, Claimed, Retrying, Dead, Done}
	_, bad, err := m.find(ctx, m.mine(e("$or", bson.A{
		bson.D{m.e("state", d("$nin", known))},
		bson.D{m.is(Claimed), m.e("slot", nil)},
		bson.D{m.is(Claimed), m.e("session", nil)},
	})), options.Find().SetLimit(oddAtOnce).SetProjection(m.mark()))
	if err != nil {
		return nil, err
	}
	lists, err := m.listed(ctx)
	return append(bad, lists...), err
}

// oddKeys is how many of the first ready rows are looked at for a key that is a list: those are
// never given, so in time they are the first ones.
const oddKeys = 1000

// listed returns some of the first rows that are never given, their key being a list. One command.
func (m *Mongo) listed(ctx context.Context) (bad []Malformed, err error) {
	if m.chain.key == "" {
		return nil, nil
	}
	var any bson.A
	for _, one := range m.noArray() {
		any = append(any, d(one.Key, d("$type", "array")))
	}
	docs, err := m.aggregate(ctx,
		d("$match", m.mine(m.isReady())), d("$limit", oddKeys),
		d("$match", d("$or", any)), d("$limit", oddAtOnce),
		d("$project", bson.D{e("_id", 1), e(m.chain.path[0], 1)}))
	for _, doc := range docs {
		bad = append(bad, Malformed{doc.Lookup("_id"), m.chain.list(doc), ManyKeys})
	}
	return bad, err
}

// ManyKeys is what is wrong with a row that would be in several chains.
const ManyKeys = "is a list, and Config.Key asks for one value: the row is never given"
