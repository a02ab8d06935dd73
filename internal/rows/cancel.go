package rows

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Cancelled is the error of a row that was cancelled.
const Cancelled = "cancelled"

// Cancel is documented in [Store].
func (m *Mongo) Cancel(ctx context.Context, now time.Time, id bson.RawValue) (State, error) {
	dead := m.leaving(Dead, bson.D{e(m.at("error"), Cancelled), e(m.at("deadAt"), now)}, 0, "notBefore")
	marked := bson.D{e("$set", bson.D{e(m.at("cancelled"), true)})}
	const rounds = 3 // its worker may end its claim between two commands
	for range rounds {
		waits := m.mine(e("_id", id), e(m.at("state"), bson.D{e("$in", bson.A{nil, Ready, Retrying})}), m.isDocument())
		if n, err := m.only(ctx, id, waits, dead); n > 0 || err != nil {
			return Dead, err
		}
		if n, err := m.only(ctx, id, bson.D{e("_id", id), m.is(Claimed)}, marked); n > 0 || err != nil {
			return Claimed, err // its worker may have changed what Filter names
		}
		if found, err := m.Current(ctx, []bson.RawValue{id}); err != nil || len(found) == 0 || isOver(found[0]) {
			return "", err
		}
	}
	return "", fmt.Errorf("row %s is no row of the queue any more, or claimed and given back all the time", Text(id))
}

func isOver(row Row) bool { return row.Mark.State == Dead || row.Mark.State == Done }
