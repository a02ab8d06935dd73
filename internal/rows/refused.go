package rows

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// A Refused is a row that the server refuses to change, and why.
type Refused struct {
	ID  bson.RawValue
	Err error
}

// A RefusedError says that the server refuses to change some rows as they are: by a validator, by
// their size. The other rows of the command were changed. MarkOne does not know which row it is.
type RefusedError struct{ Rows []Refused }

func (e *RefusedError) Error() string {
	if len(e.Rows) == 0 {
		return "the server refuses to change a row"
	}
	return fmt.Sprintf("the server refuses to change %d rows, the first of them %s: %v", len(e.Rows),
		Text(e.Rows[0].ID), e.Rows[0].Err)
}

// A QueryError says that the server refuses the question for rows: the filter, or the order.
type QueryError struct{ Err error }

func (e *QueryError) Error() string {
	return fmt.Sprintf("the server refuses the query for rows: %v", e.Err)
}
func (e *QueryError) Unwrap() error { return e.Err }

// codesPassing are those of errors that say nothing of a document or a query: the server is going
// away, busy or out of time, its data move, or the user may not.
var codesPassing = []int{6, 7, codeUnauthorized, 24, 43, 46, 50, 63, 64, 89, 91, 112, 133, 134, 150, 175, 189, 202, 225,
	234, 237, 249, 251, 262, 279, 290, 314, 317, 8000, 9001, 10107, 11600, 11601, 11602, 13388, 13435, 13436, 14031}

// refuses reports whether a server has answered, and will answer so again.
func refuses(err error) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) || server.HasErrorLabel("RetryableWriteError") || has(err, codesPassing...) {
		return false
	}
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) {
		return len(bulk.WriteErrors) > 0
	}
	var write mongo.WriteException
	if errors.As(err, &write) {
		return len(write.WriteErrors) > 0
	}
	var command mongo.CommandError
	return errors.As(err, &command)
}

// A change is what becomes of all rows that match; without an update they are removed.
type change struct{ filter, update bson.D }

// carryOut sends changes as one command, and each row alone when the server refuses one.
func (m *Mongo) carryOut(ctx context.Context, changes ...change) (int, error) {
	models := make([]mongo.WriteModel, len(changes))
	for i, c := range changes {
		if c.update == nil {
			models[i] = mongo.NewDeleteManyModel().SetFilter(c.filter)
			continue
		}
		models[i] = mongo.NewUpdateManyModel().SetFilter(c.filter).SetUpdate(c.update)
	}
	result, err := m.rows.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	switch {
	case refuses(err):
		return m.alone(ctx, changes)
	case err != nil:
		return 0, m.failed("update, remove", err)
	}
	return int(result.MatchedCount + result.DeletedCount), nil
}

// mostAlone is how many rows of a change are sent alone by one call.
const mostAlone = 1000

// alone sends every row of the changes alone. Its count may leave out what was changed before.
func (m *Mongo) alone(ctx context.Context, changes []change) (n int, err error) {
	var refused []Refused
	for _, c := range changes {
		found, bad, err := m.find(ctx, c.filter, options.Find().SetLimit(mostAlone).
			SetProjection(bson.D{e("_id", 1), e(m.field, 1)}))
		if err != nil {
			return n, err
		}
		for _, one := range bad {
			found = append(found, Row{ID: one.ID})
		}
		for _, row := range found {
			matched, err := m.one(ctx, bson.D{e("$and", bson.A{bson.D{e("_id", row.ID)}, c.filter})}, c.update)
			n += matched
			switch {
			case refuses(err):
				refused = append(refused, Refused{row.ID, catalog.Shown(err)})
			case err != nil:
				return n, m.failed("update, remove", err)
			}
		}
	}
	return n, &RefusedError{refused}
}

// one changes one row, or removes it.
func (m *Mongo) one(ctx context.Context, filter, update bson.D) (int, error) {
	if update == nil {
		result, err := m.rows.DeleteOne(ctx, filter)
		if err != nil {
			return 0, err
		}
		return int(result.DeletedCount), nil
	}
	result, err := m.rows.UpdateOne(ctx, filter, update)
	if err != nil {
		return 0, err
	}
	return int(result.MatchedCount), nil
}

// Refuse makes the store refuse to change rows for which this returns an error; nil: none. For tests.
func (m *Memory) Refuse(refuses func(Row) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuses = refuses
}

// refusesOne reports whether a row is refused, and notes it.
func (m *Memory) refusesOne(r *Row, refused *RefusedError) bool {
	if m.refuses == nil {
		return false
	}
	err := m.refuses(*r)
	if err != nil {
		refused.Rows = append(refused.Rows, Refused{r.ID, err})
	}
	return err != nil
}

func (e *RefusedError) orNil() error {
	if len(e.Rows) == 0 {
		return nil
	}
	return e
}
