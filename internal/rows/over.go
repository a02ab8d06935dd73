package rows

import (
	"context"
	"fmt"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// lot is how many rows are listed, or removed, by one command.
const lot = 1000

// lot returns that many rows that match.
func (m *Mongo) lot(ctx context.Context, filter bson.D) (ids []bson.RawValue, _ error) {
	found, _, err := m.find(ctx, filter, options.Find().SetLimit(lot).SetProjection(d("_id", 1)))
	for _, row := range found {
		ids = append(ids, row.ID)
	}
	return ids, err
}

// over is said of rows of a state, Dead or Done, which have been so since before a time; zero:
// since whenever.
func (m *Mongo) over(state State, before time.Time) bson.D {
	is := bson.D{m.is(state)}
	if !before.IsZero() {
		is = append(is, e(m.at(stamp(state)), d("$lt", before)))
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
		ctx, is := alone(ctx), m.is(state)
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
	again := bson.D{m.unset("state", "attempts", "deadAt", "rescued")}
	return m.carryOut(ctx, change{m.mine(e("_id", in(ids)), m.is(Dead)), again})
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
	ids, err := m.lot(ctx, m.mine(m.over(state, before)...))
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	return m.carryOut(ctx, change{filter: m.mine(append(m.over(state, before), e("_id", in(ids)))...)})
}

// Dying is documented in [Store].
func (m *Mongo) Dying(ctx context.Context, slot Slot, fence, most int64) ([]bson.RawValue, error) {
	return m.lot(ctx, append(m.former(slot, fence), m.begun(), m.e("attempts", d("$gte", most))))
}

// Documents is documented in [Store].
func (m *Mongo) Documents(ctx context.Context, ids []bson.RawValue) ([]Row, error) {
	found, _, err := m.find(ctx, d("_id", in(ids)), options.Find())
	return found, err
}

// Cancelled is the error of a row that was cancelled.
const Cancelled = "cancelled"

// Cancel is documented in [Store].
func (m *Mongo) Cancel(ctx context.Context, now time.Time, id bson.RawValue) (State, error) {
	ctx = alone(ctx)
	dead := m.leaving(Dead, bson.D{m.e("error", Cancelled), m.e("deadAt", now)}, 0, "notBefore")
	marked := d("$set", bson.D{m.e("cancelled", true)})
	const rounds = 3 // its worker may end its claim between two commands
	for range rounds {
		waits := m.mine(e("_id", id), m.e("state", in(bson.A{nil, Ready, Retrying})), m.isDocument())
		if n, err := m.only(ctx, id, waits, dead); n > 0 || err != nil {
			return Dead, err
		}
		if n, err := m.only(ctx, id, bson.D{e("_id", id), m.is(Claimed)}, marked); n > 0 || err != nil {
			return Claimed, err // its worker may have changed what Filter names
		}
		found, err := m.Current(ctx, []bson.RawValue{id})
		if err != nil || len(found) == 0 || isOver(found[0]) {
			return "", err
		}
	}
	return "", fmt.Errorf("row %s is no row of the queue any more, or claimed and given back "+
		"all the time", Text(id))
}

func isOver(row Row) bool { return row.Mark.State == Dead || row.Mark.State == Done }
