package rows

import (
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

// Depth is documented in [Store].
func (m *Mongo) Depth(ctx context.Context, now time.Time, most int64) (Depth, error) {
	var d Depth
	type part struct {
		filter []bson.E
		into   *int64
	}
	counts := []part{{[]bson.E{m.is(Claimed)}, &d.Counts.Claimed}, {[]bson.E{m.is(Retrying)}, &d.Counts.Retrying},
		{[]bson.E{m.is(Dead)}, &d.Counts.Dead}}
	if m.due == "" {
		counts = append(counts, part{[]bson.E{m.isReady()}, &d.Counts.Ready})
	} else {
		due := m.isDue(now)
		counts = append(counts, part{[]bson.E{m.isReady(), due}, &d.Counts.Ready},
			part{[]bson.E{m.isReady(), e(m.due, bson.D{e("$not", due.Value)})}, &d.Counts.Later})
	}
	for _, one := range counts {
		reply, err := m.rows.Database().RunCommand(ctx, bson.D{e("count", m.rows.Name()),
			e("query", m.mine(one.filter...)), e("limit", most)}).Raw()
		if err != nil {
			return Depth{}, m.failed("find", err)
		}
		*one.into, _ = reply.Lookup("n").AsInt64OK()
	}
	head := func(field string) *options.FindOptionsBuilder {
		return options.Find().SetLimit(1).SetBatchSize(2).SetProjection(bson.D{e(field, 1)})
	}
	first, err := m.inOrder(ctx, m.wanted(&Ask{Due: now}), head(orID(m.due)))
	at := m.at("notBefore")
	if err == nil && len(first) > 0 {
		d.Since = since(first[0], m.due)
	}
	if err == nil {
		first, err = m.docs(ctx, m.mine(m.is(Retrying)), head(at).SetSort(bson.D{e(at, 1)}))
	}
	if err == nil && len(first) > 0 {
		d.Retry = dateIn(first[0], at)
	}
	return d, m.failed("find", err)
}

func orID(field string) string {
	if field == "" {
		return "_id"
	}
	return field
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
