package rows

import (
	"cmp"
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Count is documented in [Store].
func (m *Mongo) Count(ctx context.Context, most int64) (depth Depth, err error) {
	ctx = Alone(ctx)
	var ask Ask
	if m.due != "" {
		if ask.Due, err = m.Now(ctx); err != nil {
			return Depth{}, err
		}
	}
	c := &depth.Counts
	sound := e("$nor", m.oddState())
	parts := []struct {
		filter bson.D
		into   *int64
	}{
		{m.mine(m.is(Claimed), sound), &c.Claimed}, {m.mine(m.is(Retrying), sound), &c.Retrying},
		{m.mine(m.is(Dead), sound), &c.Dead}, {m.mine(m.is(Done), sound), &c.Done},
		{m.wanted(ask), &c.Ready}, {m.mine(m.odd()), &c.Odd}, {nil, &c.Later},
	}
	if m.due != "" {
		later := append(m.oddReady(), bson.D{m.isDue(ask.Due)})
		parts[len(parts)-1].filter = m.mine(m.isReady(), e("$nor", later))
	}
	for _, one := range parts {
		if one.filter == nil || one.into == &c.Done && most > 0 {
			continue
		}
		count := bson.D{e("count", m.rows.Name()), e("query", one.filter)}
		if most > 0 {
			count = append(count, e("limit", most))
		}
		reply, err := m.rows.Database().RunCommand(ctx, count).Raw()
		if err != nil {
			return Depth{}, m.failed("find", err)
		}
		n, _ := reply.Lookup("n").AsInt64OK()
		*one.into = n
	}
	if most == 0 {
		return depth, nil
	}
	err = m.ages(ctx, &depth, ask)
	return depth, err
}

// ages sets the times of a depth with two commands.
func (m *Mongo) ages(ctx context.Context, depth *Depth, ask Ask) error {
	head := func(field string) *options.FindOptionsBuilder {
		return options.Find().SetLimit(1).SetBatchSize(2).SetProjection(d(field, 1))
	}
	first, err := m.inOrder(ctx, m.wanted(ask), head(cmp.Or(m.due, "_id")))
	if err == nil && len(first) > 0 {
		depth.Since = m.since(first[0])
	}
	at := m.at("notBefore")
	if err == nil {
		first, err = m.docs(ctx, m.mine(m.is(Retrying), m.e("notBefore", d("$type", "date"))),
			head(at).SetSort(d(at, 1)))
	}
	if err == nil && len(first) > 0 {
		depth.Retry = dateIn(first[0], at)
	}
	return m.failed("find", err)
}

// since returns the time from which a ready row could be claimed.
func (m *Mongo) since(row bson.Raw) time.Time {
	if m.due != "" {
		return dateIn(row, m.due)
	}
	if id, ok := row.Lookup("_id").ObjectIDOK(); ok {
		return id.Timestamp().UTC()
	}
	return time.Time{}
}
