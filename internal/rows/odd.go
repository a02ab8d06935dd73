package rows

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The method Odd sends two queries. Each query returns at most oddAtOnce rows. The query for ready
// rows reads at most oddAmong rows. Odd rows are never claimed, so they are soon among the first
// ready rows.
const (
	oddAtOnce = 10
	oddAmong  = 1000
)

// ManyKeys describes the problem of a row with a list as its key. The row would be in several
// chains.
const ManyKeys = "is a list, and Config.Key needs one value"

// A part describes one element of a row's field. If an element has a wrong type or value, the row
// is odd: no process claims or ends it.
type part struct {
	name string
	kind bson.Type // TypeInt64 allows any number type, from zero to mostCount
	of   State     // rows in this state need the element; empty: it is optional
}

var parts = []part{
	{"fence", bson.TypeInt64, ""}, {"attempts", bson.TypeInt64, ""}, {"slotFence", bson.TypeInt64, ""},
	{"slot", bson.TypeString, Claimed}, {"locks", bson.TypeString, ""},
	{"session", bson.TypeObjectID, Claimed}, {"batch", bson.TypeObjectID, Claimed},
	{"notBefore", bson.TypeDateTime, Retrying},
}

const mostCount = 1 << 53

// problem describes an error in the part of a row. If the part is valid, it returns an empty
// string.
func (p part) problem(in bson.Raw, state State) string {
	v, err := in.LookupErr(p.name)
	switch {
	case p.of != "" && p.of != state, p.of == "" && err != nil:
	case err != nil:
		return fmt.Sprintf("is absent in a %s row", state)
	case p.kind == bson.TypeInt64:
		switch n, ok := v.AsInt64OK(); {
		case !ok || v.Type == bson.TypeDecimal128:
			return fmt.Sprintf("is a %s, not a number", v.Type)
		case n < 0 || n > mostCount || v.Type == bson.TypeDouble && !(v.Double() >= 0):
			return fmt.Sprintf("is %s, not a number from zero to 2^53", v)
		}
	case v.Type != p.kind:
		return fmt.Sprintf("is a %s, not a %s", v.Type, p.kind)
	case v.Type == bson.TypeString && p.of != "" && v.StringValue() == "":
		return "is empty"
	}
	return ""
}

func count(in bson.Raw, name string) int64 {
	n, _ := in.Lookup(name).AsInt64OK()
	return n
}

func there(condition bson.D) bson.D { return append(d("$exists", true), condition...) }

// wrong returns conditions for rows in which the given part has a wrong type or value. A list meets
// a condition if one of its elements meets the condition. Lists therefore need their own condition.
func (m *Mongo) wrong(p part) bson.A {
	name, is := m.at(p.name), bson.D{}
	if p.of != "" {
		is = bson.D{m.is(p.of)}
	}
	when := func(condition bson.D) bson.D { return append(slices.Clip(is), e(name, condition)) }
	list := bson.A{when(d("$type", "array"))}
	switch {
	case p.kind == bson.TypeInt64:
		return append(list, when(there(not(d("$type", bson.A{"int", "long", "double"})))),
			when(there(not(d("$gte", 0)))), when(d("$gt", int64(mostCount))))
	case p.of == "":
		return append(list, when(there(not(d("$type", p.kind)))))
	case p.kind == bson.TypeString:
		list = append(list, append(slices.Clip(is), e(name, "")))
	}
	return append(list, when(not(d("$type", p.kind))))
}

// oddReady returns conditions for ready rows that can never be claimed.
func (m *Mongo) oddReady() bson.A {
	is := bson.A{
		d(m.field, there(not(d("$type", "object")))),
		d(m.field, d("$type", "array")), d(m.at("state"), d("$type", "array")),
	}
	for _, p := range parts {
		if p.of == "" {
			is = append(is, m.wrong(p)...)
		}
	}
	for _, path := range paths(m.key) {
		is = append(is, d(path, d("$type", "array")))
	}
	if m.due != "" {
		is = append(is, d(m.due, there(not(d("$type", bson.A{"date", "null"})))))
	}
	return is
}

// oddState returns conditions for rows that are not ready, and can never be claimed or ended.
func (m *Mongo) oddState() bson.A {
	known := bson.A{nil, Ready, Claimed, Retrying, Dead, Done}
	is := bson.A{d(m.at("state"), d("$nin", known)), d(m.at("state"), d("$type", "array"))}
	for _, p := range parts {
		for _, wrong := range m.wrong(p) {
			if p.of == "" {
				wrong = append(bson.D{m.e("state", in([]State{Claimed, Retrying}))}, wrong.(bson.D)...)
			}
			is = append(is, wrong)
		}
	}
	return is
}

func (m *Mongo) Odd(ctx context.Context) ([]Malformed, error) {
	_, bad, err := m.find(ctx, m.mine(e("$or", m.oddState())),
		options.Find().SetLimit(oddAtOnce).SetProjection(m.mark()))
	if err != nil {
		return nil, err
	}
	shown := m.mark()
	for _, path := range []string{m.key, m.due} {
		if root, _, _ := strings.Cut(path, "."); root != "" && root != "_id" && root != m.field {
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

func (m *Mongo) problem(doc bson.Raw) Malformed {
	if _, bad := Parse(doc, m.field); bad != nil {
		return *bad
	}
	one := Malformed{ID: doc.Lookup("_id"), Field: m.field, Problem: "has a part of a wrong type"}
	if field := ListIn(doc, m.key); field != "" {
		one.Field, one.Problem = field, ManyKeys
	} else if v := lookup(doc, m.due); !v.IsZero() && v.Type != bson.TypeDateTime {
		one.Field = m.due
		one.Problem = fmt.Sprintf("is a %s, and Config.Due needs a date: the row is never due", v.Type)
	}
	return one
}

// Repair makes rows ready that are claimed but have no valid slot or session, and resets their
// attempts. It does not change a malformed fence. It changes at most a thousand rows, and sends two
// commands.
func (m *Mongo) Repair(ctx context.Context) (int, error) {
	is := m.mine(m.is(Claimed), e("$or", m.oddState()))
	ids, err := m.lot(ctx, is)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return m.each(ctx, ids,
		func(id bson.E) bson.D { return d("$and", bson.A{bson.D{id}, is}) },
		m.unset("state", "locks", "slot", "slotFence", "session", "batch", "cancelled", "attempts"))
}
