package rows

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// An Ask says which of the ready rows are wanted. Nil: all, none of a store that knows due times.
type Ask struct {
	Without []bson.RawValue // these are left out
	Due     time.Time       // only rows that are due then; a store that does not know that gives all
	Held    []bson.RawValue // rows with these keys are left out
	Behind  []bson.RawValue // of these keys only the row that holds it is wanted
}

func (a *Ask) without() []bson.RawValue {
	if a == nil {
		return nil
	}
	return a.Without
}

func (a *Ask) due() time.Time {
	if a == nil {
		return time.Time{}
	}
	return a.Due
}

// Due makes the store give rows when the date in this field has passed, the earliest first. The
// name may be dotted; empty: all at once. Call it before anything else.
func (m *Mongo) Due(field string) *Mongo {
	if m.due = field; field != "" {
		m.sort = append(d(field, 1), m.sort...)
	}
	return m
}

// isDue is said of rows that are; those without a date never are.
func (m *Mongo) isDue(at time.Time) bson.E { return e(m.due, d("$lte", at)) }

// A Coming is a row that is due at a time.
type Coming struct {
	ID  bson.RawValue
	Due time.Time
}

// Later is documented in [Store].
func (m *Mongo) Later(ctx context.Context, after time.Time, n int) ([]Coming, error) {
	if m.due == "" {
		return nil, nil
	}
	filter := m.mine(m.isReady(), e(m.due, d("$gt", after)))
	opts := options.Find().SetLimit(int64(n)).SetBatchSize(int32(n + 1)).
		SetProjection(bson.D{e("_id", 1), e(m.due, 1)})
	docs, err := m.inOrder(ctx, filter, opts)
	var found []Coming
	for _, doc := range docs {
		due, _ := doc.Lookup(strings.Split(m.due, ".")...).TimeOK()
		found = append(found, Coming{doc.Lookup("_id"), due.UTC()})
	}
	return found, m.failed("find", err)
}

// dueTold are expressions for an event of the change stream: the date at which its row is due, if
// it tells; whether a row that was added has one; and whether one was changed. list are the fields
// that were set, by name.
func (m *Mongo) dueTold(list string) (due, added, moved any) {
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
		return time.Time{}, errors.New("the server's hello does not tell its time")
	}
	return now.UTC(), nil
}

// hello asks for what the server says of itself; one that does not know hello is asked as before
// MongoDB 4.4.2.
func (m *Mongo) hello(ctx context.Context) (bson.Raw, error) {
	ctx = alone(ctx)
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
