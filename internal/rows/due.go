package rows

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// isDue matches rows that are due at a time. A row without a date is never due.
func (m *Mongo) isDue(at time.Time) bson.E { return e(m.due, d("$lte", at)) }

// A Coming is a row that will be due at a known time.
type Coming struct {
	ID  bson.RawValue
	Due time.Time
}

// Later is documented in [Store].
func (m *Mongo) Later(ctx context.Context, after time.Time, n int) (found []Coming, _ error) {
	if m.due == "" {
		return nil, nil
	}
	filter := m.mine(m.isReady(), e(m.due, d("$gt", after)))
	docs, err := m.inOrder(ctx, filter, options.Find().SetLimit(int64(n)).
		SetBatchSize(int32(n+1)).SetProjection(bson.D{e("_id", 1), e(m.due, 1)}))
	for _, doc := range docs {
		found = append(found, Coming{doc.Lookup("_id"), dateIn(doc, m.due)})
	}
	return found, m.failed("find", err)
}

// dateIn returns the date in a field of a document, or the zero time without a date.
func dateIn(doc bson.Raw, path string) time.Time {
	at, ok := doc.Lookup(strings.Split(path, ".")...).TimeOK()
	if !ok {
		return time.Time{}
	}
	return at.UTC()
}

// dueStages returns three expressions for an event of the change stream:
//   - due is the due time of the row, if the event has it.
//   - added reports whether a new row has a due time.
//   - moved reports whether the event changes the due time.
//
// The expression list holds the changed fields by name.
func (m *Mongo) dueStages(list string) (due, added, moved any) {
	if m.due == "" {
		return nil, true, false
	}
	named := d("$filter", bson.D{e("input", list), e("as", "one"),
		e("cond", d("$eq", bson.A{"$$one.k", m.due}))})
	whole := d("$ifNull", bson.A{"$fullDocument." + m.due,
		"$updateDescription.updatedFields." + m.due})
	due = d("$let", bson.D{
		e("vars", d("named", d("$arrayElemAt", bson.A{named, 0}))),
		e("in", d("$ifNull", bson.A{"$$named.v", whole})),
	})
	has := d("$eq", bson.A{d("$type", "$due"), "date"})
	return due, has, d("$and", bson.A{has, d("$eq", bson.A{"$operationType", "update"})})
}

// Now is documented in [Store].
func (m *Mongo) Now(ctx context.Context) (time.Time, error) {
	reply, err := m.hello(ctx)
	if err != nil {
		return time.Time{}, err
	}
	now, ok := reply.Lookup("localTime").TimeOK()
	if !ok {
		return time.Time{}, errors.New("the server's hello has no localTime")
	}
	return now.UTC(), nil
}

// hello returns the reply to hello, or to isMaster on servers before MongoDB 4.4.2.
func (m *Mongo) hello(ctx context.Context) (bson.Raw, error) {
	ctx = Alone(ctx)
	db := m.rows.Database()
	if !m.oldHello.Load() {
		reply, err := db.RunCommand(ctx, d("hello", 1)).Raw()
		if !has(err, codeCommandNotFound) {
			return reply, m.failed("hello", err)
		}
		m.oldHello.Store(true)
	}
	reply, err := db.RunCommand(ctx, d("isMaster", 1)).Raw()
	return reply, m.failed("isMaster", err)
}
