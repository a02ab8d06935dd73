package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
// away, busy, out of time or of keys, its data or its shards move, it takes no writes of anybody,
// or the user may not. By the list of codes of MongoDB 8.
var codesPassing = []int{6, 7, 11, codeUnauthorized, 18, 24, 43, 46, 50, 63, 64, 70, 71, 83, 89, 90,
	91, 107, 112, 117, 133, 134, 136, 145, 149, 150, 175, 189, 199, 202, 203, 209, 210, 211, 215, 216,
	225, 234, 237, 239, 246, 249, 250, 251, 261, 262, 264, 267, 272, 279, 281, 282, 290, 303, 308, 310,
	314, 317, 319, 338, 342, 343, 355, 358, 363, 365, 371, 391, 402, 406, 407, 412, 414, 433, 449,
	8000, 9001, 10107, 11600, 11601, 11602, 13388, 13435, 13436, 14031}

// labelsPassing are what servers say themselves of an error that may pass.
var labelsPassing = []string{"RetryableWriteError", "TransientTransactionError", "RetryableError"}

// refuses reports whether a server has answered, and will answer so again.
func refuses(err error) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) || has(err, codesPassing...) ||
		slices.ContainsFunc(labelsPassing, server.HasErrorLabel) {
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
	result, err := m.bulk(ctx, changes)
	switch {
	case refuses(err):
		return m.oneByOne(ctx, changes)
	case err != nil:
		return 0, m.failed("update, remove", err)
	}
	return int(result.MatchedCount + result.DeletedCount), nil
}

// So many rows are sent alone by one command, each with the whole filter, which may hold a thousand
// _ids, and so many such commands are sent for a change.
const (
	mostAlone = 100
	mostLots  = 100
)

// oneByOne sends every row of the changes alone. Its count may leave out what was changed before.
func (m *Mongo) oneByOne(ctx context.Context, changes []change) (n int, err error) {
	var refused RefusedError
	for _, c := range changes {
		without := bson.A{} // they match still
		for range mostLots {
			docs, err := m.docs(ctx, d("$and", bson.A{c.filter, d("_id", d("$nin", without))}),
				options.Find().SetLimit(mostAlone).SetBatchSize(mostAlone+1).SetProjection(d("_id", 1)))
			if err != nil {
				return n, m.failed("find", err)
			}
			ids := make([]bson.RawValue, len(docs))
			for i, doc := range docs {
				ids[i] = doc.Lookup("_id")
			}
			changed, bad, err := m.each(ctx, ids, func(id bson.RawValue) change {
				return change{d("$and", bson.A{d("_id", id), c.filter}), c.update}
			})
			if n += changed; err != nil {
				return n, err
			}
			for _, one := range bad {
				refused.Rows = append(refused.Rows, Refused{ids[one.Index], catalog.Shown(one)})
				without = append(without, ids[one.Index])
			}
			if len(ids) < mostAlone {
				break
			}
		}
	}
	return n, &refused
}

// each changes rows one by one in one command, and returns which of them the server refuses.
func (m *Mongo) each(ctx context.Context, ids []bson.RawValue, to func(id bson.RawValue) change) (
	n int, refused []mongo.BulkWriteError, err error) {
	if len(ids) == 0 {
		return 0, nil, nil
	}
	changes := make([]change, len(ids))
	for i, id := range ids {
		changes[i] = to(id)
	}
	result, err := m.bulk(ctx, changes)
	if result != nil {
		n = int(result.MatchedCount + result.DeletedCount)
	}
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) && bulk.WriteConcernError == nil && !has(err, codesPassing...) {
		return n, bulk.WriteErrors, nil
	}
	return n, nil, m.failed("update, remove", err)
}

// bulk sends changes as one command.
func (m *Mongo) bulk(ctx context.Context, changes []change) (*mongo.BulkWriteResult, error) {
	models := make([]mongo.WriteModel, len(changes))
	for i, c := range changes {
		if c.update == nil {
			models[i] = mongo.NewDeleteManyModel().SetFilter(c.filter)
			continue
		}
		models[i] = mongo.NewUpdateManyModel().SetFilter(c.filter).SetUpdate(c.update)
	}
	return m.rows.BulkWrite(alone(ctx), models, options.BulkWrite().SetOrdered(false))
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

func (e *RefusedError) orNil() error {
	if len(e.Rows) == 0 {
		return nil
	}
	return e
}
