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

// A Refused is a row that the server refuses to change, and the reason.
type Refused struct {
	ID  bson.RawValue
	Err error
}

// A RefusedError reports rows that the server refuses to change because of a validator or their
// size. The other rows of the command were changed. A RefusedError of Claim names no row.
type RefusedError struct{ Rows []Refused }

func (e *RefusedError) Error() string {
	if len(e.Rows) == 0 {
		return "the server refuses to change a row"
	}
	return fmt.Sprintf("the server refuses to change %d rows, the first of them %s: %v", len(e.Rows),
		Text(e.Rows[0].ID), e.Rows[0].Err)
}

// A QueryError reports that the server refuses the query for rows because of its filter or order.
type QueryError struct{ Err error }

func (e *QueryError) Error() string {
	return fmt.Sprintf("the server refuses the query for rows: %v", e.Err)
}
func (e *QueryError) Unwrap() error { return e.Err }

// codesPassing are the codes of errors that do not depend on a document or a query:
//   - The server shuts down, is busy, or accepts no writes.
//   - The server is out of time or has no signing key.
//   - Data or shards move.
//   - The user lacks a privilege.
//
// They are from MongoDB 8's list of codes.
var codesPassing = []int{6, 7, 11, codeUnauthorized, 18, 24, 43, 46, 50, 63, 64, 70, 71, 83, 89, 90,
	91, 107, 112, 117, 133, 134, 136, 145, 149, 150, 175, 189, 199, 202, 203, 209, 210, 211, 215, 216,
	225, 234, 237, 239, 246, 249, 250, 251, 261, 262, 264, 267, 272, 279, 281, 282, 290, 303, 308, 310,
	314, 317, 319, 338, 342, 343, 355, 358, 363, 365, 371, 391, 402, 406, 407, 412, 414, 433, 449,
	450, 462, 463, 8000, 9001, 10107, 11600, 11601, 11602, 13388, 13435, 13436, 14031}

// labelsPassing are the labels of errors that may pass.
var labelsPassing = []string{"RetryableWriteError", "TransientTransactionError", "RetryableError"}

// refuses reports whether a server answered with an error that it would return again.
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

// A change is an update of the rows that match a filter. Without an update it removes these rows.
type change struct{ filter, update bson.D }

// all carries out changes with one command.
func (m *Mongo) all(ctx context.Context, changes ...change) (int, error) {
	models := make([]mongo.WriteModel, len(changes))
	for i, c := range changes {
		if c.update == nil {
			models[i] = mongo.NewDeleteManyModel().SetFilter(c.filter)
			continue
		}
		models[i] = mongo.NewUpdateManyModel().SetFilter(c.filter).SetUpdate(c.update)
	}
	result, err := m.rows.BulkWrite(Alone(ctx), models, options.BulkWrite().SetOrdered(false))
	if result == nil {
		return 0, err
	}
	return int(result.MatchedCount + result.DeletedCount), err
}

// each carries out one change for each of these rows, with one command.
func (m *Mongo) each(ctx context.Context, ids []bson.RawValue, changes []change) (int, error) {
	if len(changes) == 0 {
		return 0, nil
	}
	n, err := m.all(ctx, changes...)
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil || has(err, codesPassing...) ||
		len(bulk.WriteErrors) == 0 {
		return n, m.failed("update, remove", err)
	}
	var refused RefusedError
	for _, one := range bulk.WriteErrors {
		refused.Rows = append(refused.Rows, Refused{ids[one.Index], catalog.Shown(one)})
	}
	return n, &refused
}

// only changes one row, in the transaction of ctx if it has one.
func (m *Mongo) only(ctx context.Context, id bson.RawValue, filter, update bson.D) (int, error) {
	result, err := m.rows.UpdateOne(ctx, filter, update)
	switch {
	case err == nil:
		return int(result.MatchedCount), nil
	case transacts(ctx) && has(err, codeIllegal, codeNoTransactions):
		return 0, fmt.Errorf("%w: %w", ErrNoTransactions, catalog.Shown(err))
	case refuses(err) && !transacts(ctx):
		return 0, &RefusedError{[]Refused{{id, catalog.Shown(err)}}}
	}
	return 0, m.failed("update", err)
}

// lot returns the _ids of at most lotSize rows that match.
func (m *Mongo) lot(ctx context.Context, filter bson.D) (ids []bson.RawValue, _ error) {
	docs, err := m.docs(ctx, filter,
		options.Find().SetLimit(lotSize).SetBatchSize(lotSize+1).SetProjection(d("_id", 1)))
	for _, doc := range docs {
		ids = append(ids, doc.Lookup("_id"))
	}
	return ids, m.failed("find", err)
}

// lotSize is the number of rows that one command lists, changes or removes.
const lotSize = 1000
