package rows

import (
	"context"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// lot is how many rows are listed, or removed, by one command.
const lot = 1000

// over is said of rows of a state, Dead or Done, which have been so since before a time; zero:
// since whenever.
func (m *Mongo) over(state State, before time.Time) bson.D {
	is := bson.D{m.is(state)}
	if !before.IsZero() {
		is = append(is, e(m.at(stamp(state)), bson.D{e("$lt", before)}))
	}
	return is
}

// stamp is the field that says since when a row is Dead or Done.
func stamp(state State) string {
	if state == Dead {
		return "deadAt"
	}
	return "doneAt"
}

// List returns the rows of a state with their documents, by the order of the server. One that
// cannot be understood comes with a *Malformed. One command for many rows.
func (m *Mongo) List(ctx context.Context, state State) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		is := m.is(state)
		if state == Ready {
			is = m.isReady()
		}
		cursor, err := m.rows.Find(ctx, m.mine(is, m.isDocument()), options.Find().SetBatchSize(lot/10))
		if err != nil {
			yield(Row{}, m.failed("find", err))
			return
		}
		defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }() // the server closes it by itself
		for cursor.Next(ctx) {
			row, bad := Parse(append(bson.Raw(nil), cursor.Current...), m.field)
			err = nil
			if bad != nil {
				err = bad
			}
			if !yield(row, err) {
				return
			}
		}
		if err := cursor.Err(); err != nil {
			yield(Row{}, m.failed("find", err))
		}
	}
}

// Retry makes dead rows ready, from their first attempt. They keep their failures.
func (m *Mongo) Retry(ctx context.Context, ids []bson.RawValue) (int, error) {
	return m.carryOut(ctx, change{m.mine(e("_id", in(ids)), m.is(Dead)), bson.D{
		e("$unset", bson.D{e(m.at("state"), ""), e(m.at("attempts"), ""), e(m.at("deadAt"), ""),
			e(m.at("rescued"), "")}),
	}})
}

// Remove removes the documents of rows that are Dead or Done.
func (m *Mongo) Remove(ctx context.Context, state State, ids []bson.RawValue) (int, error) {
	return m.carryOut(ctx, change{filter: m.mine(e("_id", in(ids)), m.is(state))})
}

// Keeps says that rows which are done are removed after a while: an index on when they were is
// needed.
func (m *Mongo) Keeps(is bool) *Mongo {
	m.keeps = is
	return m
}

// Purge is documented in [Store].
func (m *Mongo) Purge(ctx context.Context, state State, before time.Time) (int, error) {
	found, _, err := m.find(ctx, m.mine(m.over(state, before)...),
		options.Find().SetLimit(lot).SetProjection(bson.D{e("_id", 1)}))
	var ids []bson.RawValue
	for _, row := range found {
		ids = append(ids, row.ID)
	}
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return m.carryOut(ctx, change{filter: m.mine(append(m.over(state, before), e("_id", in(ids)))...)})
}
