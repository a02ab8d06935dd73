package rows

import (
	"context"
	"fmt"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// over matches rows that have been Dead or Done since before a time. A zero time matches all rows
// in that state.
func (m *Mongo) over(state State, before time.Time, more ...bson.E) bson.D {
	is := append(bson.D{m.is(state)}, more...)
	if !before.IsZero() {
		stamp := "doneAt"
		if state == Dead {
			stamp = "deadAt"
		}
		is = append(is, m.e(stamp, d("$lt", before)))
	}
	return m.mine(is...)
}

// List returns the rows of a state with their documents, in the server's order. If it cannot parse
// a row, it returns the row with a *Malformed. It sends one command for a hundred rows.
func (m *Mongo) List(ctx context.Context, state State) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		ctx, is := Alone(ctx), m.is(state)
		if state == Ready {
			is = m.isReady()
		}
		cursor, err := m.rows.Find(ctx, m.mine(is), options.Find().SetBatchSize(lotSize/10))
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

// Retry makes dead rows ready and resets their attempts. Their failures stay.
func (m *Mongo) Retry(ctx context.Context, ids []bson.RawValue) (int, error) {
	changes := make([]change, len(ids))
	for i, id := range ids {
		changes[i] = change{m.mine(e("_id", id), m.is(Dead)),
			bson.D{m.unset("state", "attempts", "deadAt")}}
	}
	return m.each(ctx, ids, changes)
}

// Remove removes the documents of rows that are in the given state, Dead or Done.
func (m *Mongo) Remove(ctx context.Context, state State, ids []bson.RawValue) (int, error) {
	n, err := m.all(ctx, change{filter: m.over(state, time.Time{}, e("_id", in(ids)))})
	return n, m.failed("remove", err)
}

// Purge is documented in [Store].
func (m *Mongo) Purge(ctx context.Context, state State, before time.Time) (int, error) {
	ids, err := m.lot(ctx, m.over(state, before))
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	n, err := m.all(ctx, change{filter: m.over(state, before, e("_id", in(ids)))})
	return n, m.failed("remove", err)
}

// Cancel is documented in [Store].
func (m *Mongo) Cancel(ctx context.Context, now time.Time, id bson.RawValue) (State, error) {
	ctx = Alone(ctx)
	dead := bson.D{e("$set", bson.D{m.is(Dead), m.e("error", Cancelled), m.e("deadAt", now)}),
		m.unset("notBefore", "holds", "cancelled")}
	marked := d("$set", bson.D{m.e("cancelled", true)})
	const rounds = 3 // because the row's claim may end between two commands
	for range rounds {
		waits := m.mine(e("_id", id), m.e("state", in(bson.A{nil, Ready, Retrying})),
			e("$nor", m.oddReady()[:2]))
		if n, err := m.only(ctx, id, waits, dead); n > 0 || err != nil {
			return Dead, err
		}
		if n, err := m.only(ctx, id, bson.D{e("_id", id), m.is(Claimed)}, marked); n > 0 || err != nil {
			return Claimed, err // even if its handler has changed the fields that Filter names
		}
		found, err := m.Current(ctx, []bson.RawValue{id}, false)
		if err != nil || len(found) == 0 || found[0].Mark.State == Dead || found[0].Mark.State == Done {
			return "", err
		}
	}
	return "", fmt.Errorf("row %s is no row of the queue, or is claimed and given back all the time",
		Text(id))
}
