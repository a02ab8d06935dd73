package rows

import (
	"cmp"
	"context"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A Depth is how much stands in a queue, and for how long.
type Depth struct {
	Counts Counts // each at most as many as were asked for; Done and Refused are not counted
	// Since is from when the first ready row could be claimed: when it was due, or when its _id was
	// made, if that is an ObjectID. Zero: there is none, or it is not known.
	Since time.Time
	// Retry is when the first row that is to be tried again is due; zero: there is none.
	Retry time.Time
}

// A part is rows of a state, and where their number belongs.
type part struct {
	filter bson.D
	into   *int64
}

// parts are those of Counts, but for Done; what is due is so at this time.
func (m *Mongo) parts(c *Counts, now time.Time) []part {
	states := []part{{bson.D{m.is(Claimed)}, &c.Claimed}, {bson.D{m.is(Retrying)}, &c.Retrying},
		{bson.D{m.is(Dead)}, &c.Dead}}
	if m.due == "" {
		return append(states, part{bson.D{m.isReady()}, &c.Ready})
	}
	due := m.isDue(now)
	return append(states, part{bson.D{m.isReady(), due}, &c.Ready},
		part{bson.D{m.isReady(), e(m.due, d("$not", due.Value))}, &c.Later})
}

// Count is documented in [Store].
func (m *Mongo) Count(ctx context.Context) (c Counts, err error) {
	ctx = alone(ctx)
	var now time.Time
	if m.due != "" {
		if now, err = m.Now(ctx); err != nil {
			return Counts{}, err
		}
	}
	for _, one := range append(m.parts(&c, now), part{bson.D{m.is(Done)}, &c.Done}) {
		if *one.into, err = m.rows.CountDocuments(ctx, m.mine(one.filter...)); err != nil {
			return Counts{}, m.failed("find", err)
		}
	}
	return c, nil
}

// Depth is documented in [Store].
func (m *Mongo) Depth(ctx context.Context, now time.Time, most int64) (Depth, error) {
	ctx = alone(ctx)
	var depth Depth
	for _, one := range m.parts(&depth.Counts, now) {
		reply, err := m.rows.Database().RunCommand(ctx, bson.D{e("count", m.rows.Name()),
			e("query", m.mine(one.filter...)), e("limit", most)}).Raw()
		if err != nil {
			return Depth{}, m.failed("find", err)
		}
		*one.into, _ = reply.Lookup("n").AsInt64OK()
	}
	head := func(field string) *options.FindOptionsBuilder {
		return options.Find().SetLimit(1).SetBatchSize(2).SetProjection(d(field, 1))
	}
	first, err := m.inOrder(ctx, m.wanted(&Ask{Due: now}), head(cmp.Or(m.due, "_id")))
	at := m.at("notBefore")
	if err == nil && len(first) > 0 {
		depth.Since = since(first[0], m.due)
	}
	if err == nil {
		first, err = m.docs(ctx, m.mine(m.is(Retrying)), head(at).SetSort(d(at, 1)))
	}
	if err == nil && len(first) > 0 {
		depth.Retry = dateIn(first[0], at)
	}
	return depth, m.failed("find", err)
}

// since is from when a ready row could be claimed.
func since(row bson.Raw, due string) time.Time {
	if due != "" {
		return dateIn(row, due)
	}
	if id, ok := row.Lookup("_id").ObjectIDOK(); ok {
		return id.Timestamp().UTC()
	}
	return time.Time{}
}

func dateIn(doc bson.Raw, path string) time.Time {
	at, ok := doc.Lookup(strings.Split(path, ".")...).TimeOK()
	if !ok {
		return time.Time{}
	}
	return at.UTC()
}
