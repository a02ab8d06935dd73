package rows

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Bounds of Odd: the rows of each kind, and the ready rows that it reads. Odd rows are never claimed,
// so in time they are the first ones.
const (
	oddAtOnce = 10
	oddAmong  = 1000
)

// ManyKeys is the problem of a row that would be in several chains.
const ManyKeys = "is a list, and Config.Key needs one value"

// oddReady are conditions on ready rows that can never be claimed.
func (m *Mongo) oddReady() bson.A {
	wrong := func(name string) bson.D {
		return d(m.at(name), bson.D{e("$exists", true), e("$not", d("$type", "number"))})
	}
	is := bson.A{
		d(m.field, bson.D{e("$exists", true), e("$not", d("$type", "object"))}),
		d(m.field, d("$type", "array")), wrong("fence"), wrong("attempts"),
	}
	for i := range m.chain.path {
		is = append(is, d(pathTo(m.chain.path, i), d("$type", "array")))
	}
	if m.due != "" {
		is = append(is, m.wrongDue())
	}
	return is
}

func pathTo(path []string, i int) string {
	name := path[0]
	for _, part := range path[1 : i+1] {
		name += "." + part
	}
	return name
}

// wrongDue matches rows with something else than a date, or null, where they are due.
func (m *Mongo) wrongDue() bson.D {
	return d(m.due, bson.D{e("$exists", true), e("$not", d("$type", bson.A{"date", "null"}))})
}

// oddState matches rows that are not ready and can never be claimed or ended.
func (m *Mongo) oddState() bson.A {
	known := bson.A{nil, Ready, Claimed, Retrying, Dead, Done}
	is := func(s State, name, kind string) bson.D {
		return bson.D{m.is(s), m.e(name, not(d("$type", kind)))}
	}
	return bson.A{d(m.at("state"), d("$nin", known)), is(Claimed, "slot", "string"),
		is(Claimed, "session", "objectId"), is(Retrying, "notBefore", "date")}
}

// Odd is documented in [Store].
func (m *Mongo) Odd(ctx context.Context) ([]Malformed, error) {
	_, bad, err := m.find(ctx, m.mine(e("$or", m.oddState())),
		options.Find().SetLimit(oddAtOnce).SetProjection(m.mark()))
	if err != nil {
		return nil, err
	}
	shown := m.mark()
	for _, path := range []string{m.chain.key, m.due} {
		if root := newChain(path).path[0]; root != "" && root != "_id" && root != m.field {
			shown = append(shown, e(root, 1))
		}
	}
	docs, err := m.aggregate(ctx,
		d("$match", m.mine(m.isReady())), d("$limit", oddAmong),
		d("$match", d("$or", m.oddReady())), d("$limit", oddAtOnce), d("$project", shown))
	for _, doc := range docs {
		bad = append(bad, m.problem(doc))
	}
	return bad, err
}

// problem is the reason for which a ready row is odd.
func (m *Mongo) problem(doc bson.Raw) Malformed {
	if _, bad := Parse(doc, m.field); bad != nil {
		return *bad
	}
	one := Malformed{ID: doc.Lookup("_id"), Field: m.field, Problem: "has a part of a wrong type"}
	if m.chain.key != "" {
		if field := ListIn(doc, m.chain.key); field != "" {
			one.Field, one.Problem = field, ManyKeys
			return one
		}
	}
	if m.due != "" {
		if v, err := doc.LookupErr(newChain(m.due).path...); err == nil && v.Type != bson.TypeDateTime {
			one.Field = m.due
			one.Problem = fmt.Sprintf("is a %s, and Config.Due needs a date: the row is never due", v.Type)
		}
	}
	return one
}

// Repair makes claimed rows ready that no process can end: they have no slot or no session. Two
// commands.
func (m *Mongo) Repair(ctx context.Context) (int, error) {
	is := m.mine(m.is(Claimed), e("$or", m.oddState()))
	ids, err := m.lot(ctx, is)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	changes := make([]change, len(ids))
	for i, id := range ids {
		changes[i] = change{d("$and", bson.A{d("_id", id), is}),
			bson.D{m.unset("state", "locks", "slot", "slotFence", "session", "cancelled")}}
	}
	return m.each(ctx, ids, changes)
}
