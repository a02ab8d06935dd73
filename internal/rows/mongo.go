package rows

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
)

// Mongo is a store over a collection of the user's. It uses plain operators, which the embedded
// server has, and touches no field of a document but its own.
type Mongo struct {
	rows   *mongo.Collection
	field  string
	filter bson.D
	sort   bson.D

	due   string // the field that says when a row is due; empty: all are
	keeps bool   // rows that are done are removed after a while
	chain chain

	transactions atomic.Int32
	unique       atomic.Bool // the index for keys is there
	oldHello     atomic.Bool
	collated     atomic.Bool  // the collection compares texts in its own way
	ordered      atomic.Value // name of the index by which rows are in order, where they are
}

var _ Store = (*Mongo)(nil)

// NewMongo returns a store over the documents of a collection that match the filter. Whatever the
// collection says, its writes wait for a majority: a claim that an election undoes would be given
// twice.
func NewMongo(coll *mongo.Collection, field string, filter, sort bson.D) *Mongo {
	safe := options.Collection().SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary())
	return &Mongo{rows: coll.Clone(safe), field: field, filter: filter, sort: sort}
}

// alone is a context whose commands are no part of a transaction of the caller's: what is claimed,
// renewed or ended is so when the call returns.
func alone(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }

// transacts reports whether commands of a context are part of a transaction.
func transacts(ctx context.Context) bool {
	session := mongo.SessionFromContext(ctx)
	return session != nil && session.TransactionRunning()
}

func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

func d(key string, value any) bson.D { return bson.D{e(key, value)} }

func (m *Mongo) at(name string) string { return m.field + "." + name }

func (m *Mongo) e(name string, value any) bson.E { return e(m.at(name), value) }

func (m *Mongo) unset(names ...string) bson.E {
	var gone bson.D
	for _, name := range names {
		gone = append(gone, m.e(name, ""))
	}
	return e("$unset", gone)
}

// mark is a projection to what a row is marked with.
func (m *Mongo) mark() bson.D { return bson.D{e("_id", 1), e(m.field, 1)} }

func not(condition bson.D) bson.D { return d("$not", condition) }

func in[T any](values []T) bson.D { return d("$in", values) }

// mine is what the user calls the rows of the queue, and more.
func (m *Mongo) mine(more ...bson.E) bson.D {
	if len(m.filter) == 0 {
		return more
	}
	return d("$and", bson.A{m.filter, bson.D(more)})
}

func (m *Mongo) isReady() bson.E { return m.e("state", d("$in", bson.A{nil, Ready})) }

// isDocument is the field, or none: what else a user keeps there, null included, is no claim.
func (m *Mongo) isDocument() bson.E {
	return e("$or", bson.A{d(m.field, d("$exists", false)),
		d(m.field, bson.D{e("$type", "object"), e("$not", d("$type", "array"))})})
}

func (m *Mongo) is(s State) bson.E { return m.e("state", s) }

// wanted is what is ready and asked for.
func (m *Mongo) wanted(ask *Ask) bson.D {
	is := bson.D{m.isReady()}
	if m.due != "" {
		is = append(is, m.isDue(ask.due()))
	}
	is = append(append(is, m.isDocument()), m.chained(ask)...)
	if without := ask.without(); len(without) > 0 {
		is = append(is, e("_id", d("$nin", without)))
	}
	return m.mine(is...)
}

func (m *Mongo) claiming(c Claim) bson.D {
	set, unset := bson.D{}, []string{"notBefore"}
	if c.Lease > 0 {
		set = bson.D{m.e("leaseMS", c.Lease.Milliseconds()), m.e("beat", int64(0))}
	} else {
		unset = append(unset, "leaseMS", "beat")
	}
	if m.chain.key != "" {
		set = append(set, m.holds())
	}
	if c.Waiting {
		set = append(set, m.e("waiting", true))
	} else {
		unset = append(unset, "waiting")
	}
	return bson.D{
		e("$set", append(set,
			m.is(Claimed), m.e("locks", c.Locks), m.e("slot", c.Slot), m.e("slotFence", c.SlotFence),
			m.e("session", c.Session), m.e("batch", c.Batch), m.e("at", c.At),
		)),
		e("$inc", bson.D{m.e("fence", int64(1)), m.e("attempts", int64(1))}),
		m.unset(unset...),
	}
}

// leaving takes a claim out of a row. Fence, attempts and batch stay.
func (m *Mongo) leaving(to State, set bson.D, attempts int64, unset ...string) bson.D {
	gone := append([]string{"locks", "slot", "slotFence", "session", "waiting"}, unset...)
	if to == Dead || to == Done {
		gone = append(gone, "cancelled")
	}
	if to.Frees(m.chain.letGo) {
		gone = append(gone, "holds")
	}
	if to == Ready { // as a row that was never claimed: the index gives both by their age
		gone = append(gone, "state")
	} else {
		set = append(bson.D{m.is(to)}, set...)
	}
	update := bson.D{m.unset(gone...)}
	if len(set) > 0 {
		update = append(update, e("$set", set))
	}
	if attempts != 0 {
		update = append(update, e("$inc", bson.D{m.e("attempts", attempts)}))
	}
	return update
}

// Candidates is documented in [Store].
func (m *Mongo) Candidates(ctx context.Context, n, skip int, ask *Ask) ([]Row, []Malformed, error) {
	opts := options.Find().SetLimit(int64(n)).SetBatchSize(int32(n + 1)).SetProjection(m.known())
	if skip > 0 {
		opts.SetSkip(int64(skip))
	}
	found, bad, err := m.parse(m.inOrder(ctx, m.wanted(ask), opts))
	if refuses(err) {
		err = &QueryError{err}
	}
	return found, bad, err
}

func (m *Mongo) find(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (
	found []Row, bad []Malformed, err error) {
	return m.parse(m.docs(ctx, filter, opts))
}

// docs are the documents of a query.
func (m *Mongo) docs(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (
	[]bson.Raw, error) {
	ctx = alone(ctx)
	return read(m.rows.Find(ctx, filter, opts))(ctx)
}

// read reads all that a command has found.
func read(cursor *mongo.Cursor, err error) func(context.Context) ([]bson.Raw, error) {
	return func(ctx context.Context) (docs []bson.Raw, _ error) {
		if err == nil {
			err = cursor.All(ctx, &docs)
		}
		return docs, err
	}
}

func (m *Mongo) parse(docs []bson.Raw, err error) (found []Row, bad []Malformed, _ error) {
	if err != nil {
		return nil, nil, m.failed("find", err)
	}
	for _, doc := range docs {
		if row, malformed := Parse(doc, m.field); malformed != nil {
			bad = append(bad, *malformed)
		} else {
			found = append(found, row)
		}
	}
	return found, bad, nil
}

// Mark is documented in [Store].
func (m *Mongo) Mark(ctx context.Context, ids []bson.RawValue, c Claim) error {
	if m.chain.key != "" {
		return m.markEach(ctx, ids, c)
	}
	_, err := m.carryOut(ctx, change{m.mine(e("_id", in(ids)), m.isReady()), m.claiming(c)})
	return err
}

// Marked is documented in [Store].
func (m *Mongo) Marked(ctx context.Context, ids []bson.RawValue, c Claim) ([]Row, error) {
	opts := options.Find().SetBatchSize(int32(len(ids) + 1))
	if len(m.sort) > 0 {
		opts.SetSort(m.sort)
	}
	is := bson.D{e("_id", in(ids)), m.is(Claimed), m.e("batch", c.Batch)}
	found, _, err := m.find(ctx, is, opts)
	return found, err
}

// MarkOne is documented in [Store].
func (m *Mongo) MarkOne(ctx context.Context, c Claim, ask *Ask) (*Row, error) {
	opts := options.FindOneAndUpdate().SetReturnDocument(options.After)
	if len(m.sort) > 0 {
		opts.SetSort(m.sort)
	}
	ctx = alone(ctx)
	var doc bson.Raw
	err := m.healed(ctx, func() (err error) {
		if index := m.ordered.Load(); index != nil {
			opts.SetHint(index)
		}
		doc, err = m.rows.FindOneAndUpdate(ctx, m.wanted(ask), m.claiming(c), opts).Raw()
		return err
	})
	if err == mongo.ErrNoDocuments {
		return nil, nil
	}
	if held := m.held(err); held != nil {
		return nil, held
	}
	if refuses(err) {
		return nil, fmt.Errorf("%w: %w", &RefusedError{}, m.failed("find, update", err))
	}
	if err != nil {
		return nil, m.failed("find, update", err)
	}
	row, malformed := Parse(doc, m.field)
	if malformed != nil {
		return nil, malformed
	}
	return &row, nil
}

// of is what a slot has claimed.
func (m *Mongo) of(slot Slot) bson.D {
	locks := bson.A{slot.Locks, nil}
	return bson.D{m.is(Claimed), m.e("slot", slot.Name), m.e("locks", in(locks))}
}

// claimedBy is what every ending names.
func (m *Mongo) claimedBy(session, batch bson.ObjectID, ids ...bson.RawValue) bson.D {
	id := e("_id", in(ids))
	if len(ids) == 1 {
		id.Value = ids[0]
	}
	return bson.D{id, m.is(Claimed), m.e("session", session), m.e("batch", batch)}
}

// before is what an ending matches.
func (m *Mongo) before(end Ending, ids ...bson.RawValue) bson.D {
	is := m.claimedBy(end.Session, end.Batch, ids...)
	if end.To == Retrying { // a row that was cancelled is not tried again
		is = append(is, m.e("cancelled", d("$ne", true)))
	}
	return is
}

func (m *Mongo) ending(end Ending) bson.D {
	failed := bson.D{m.e("error", end.Error), m.e("errors", storedAll(end.Failures))}
	switch later := m.e("notBefore", end.NotBefore); {
	case end.To == Ready:
		return m.leaving(Ready, nil, -1)
	case end.To == Retrying && end.Uncounted:
		return m.leaving(Retrying, bson.D{later}, -1)
	case end.To == Retrying:
		return m.leaving(Retrying, append(bson.D{later}, failed...), 0)
	case end.To == Dead:
		return m.leaving(Dead, append(failed, m.e("deadAt", end.At)), 0)
	}
	return m.leaving(Done, bson.D{m.e("doneAt", end.At)}, 0, "error")
}

// Finish is documented in [Store].
func (m *Mongo) Finish(ctx context.Context, endings []Ending) (int, error) {
	ctx = alone(ctx)
	if len(endings) == 1 {
		return m.FinishIn(ctx, endings[0])
	}
	at := map[string]int{} // rows that end alike are one statement
	var alike [][]Ending
	for _, end := range endings {
		text := end
		text.ID, text.Pause = bson.RawValue{}, 0
		key := fmt.Sprintf("%#v", text)
		if _, is := at[key]; !is {
			at[key], alike = len(alike), append(alike, nil)
		}
		alike[at[key]] = append(alike[at[key]], end)
	}
	changes := make([]change, len(alike))
	for i, ends := range alike {
		ids := make([]bson.RawValue, len(ends))
		for n, end := range ends {
			ids[n] = end.ID
		}
		if changes[i].filter = m.before(ends[0], ids...); !ends[0].Delete {
			changes[i].update = m.ending(ends[0])
		}
	}
	return m.carryOut(ctx, changes...)
}

// FinishIn is documented in [Store].
func (m *Mongo) FinishIn(ctx context.Context, end Ending) (int, error) {
	var update bson.D
	if !end.Delete {
		update = m.ending(end)
	}
	return m.only(ctx, end.ID, m.before(end, end.ID), update)
}

// only changes one row, or removes it.
func (m *Mongo) only(ctx context.Context, id bson.RawValue, filter, update bson.D) (int, error) {
	action := "update"
	if update == nil {
		action = "remove"
	}
	n, err := m.one(ctx, filter, update)
	switch {
	case transacts(ctx) && has(err, codeIllegal, codeNoTransactions):
		return 0, fmt.Errorf("%w: %w", ErrNoTransactions, catalog.Shown(err))
	case refuses(err):
		err = &RefusedError{[]Refused{{id, catalog.Shown(err)}}}
	}
	return n, m.failed(action, err)
}

// Current is documented in [Store].
func (m *Mongo) Current(ctx context.Context, ids []bson.RawValue) ([]Row, error) {
	found, _, err := m.find(ctx, d("_id", in(ids)), options.Find().SetProjection(m.mark()))
	return found, err
}

// rescued is said of a row that is taken from who has claimed it.
func (m *Mongo) rescued() bson.D { return bson.D{m.e("rescued", true)} }

// former is what holders of a slot before this fence have claimed. A fence that a hand has taken
// out is a small one.
func (m *Mongo) former(slot Slot, fence int64) bson.D {
	return append(m.of(slot), m.e("slotFence", not(d("$gte", fence))))
}

// begun is said of rows whose attempt counts.
func (m *Mongo) begun() bson.E { return m.e("waiting", d("$ne", true)) }

// Tidy is documented in [Store].
func (m *Mongo) Tidy(ctx context.Context, now time.Time, slot Slot, fence, most int64) (
	int, error) {
	last := d("$gte", most)
	former := func(more ...bson.E) bson.D { return append(m.former(slot, fence), more...) }
	begun, full := m.begun(), m.noRoom()
	room := e(full.Key, not(d("$exists", true)))
	due := bson.D{m.is(Retrying), m.e("notBefore", d("$lte", now))}
	rescued := m.rescued()
	return m.carryOut(ctx,
		change{due, bson.D{m.unset("state", "notBefore")}},
		change{bson.D{m.is(Ready)}, bson.D{m.unset("state")}}, // by a hand
		change{former(begun, m.e("attempts", not(last)), full), m.leaving(Ready, rescued, 0)},
		change{former(begun, m.e("attempts", not(last)), room),
			m.pushing(m.leaving(Ready, rescued, 0), now, GoneProcess)},
		change{former(begun, m.e("attempts", last)), m.pushing(m.leaving(Dead,
			append(rescued, m.e("error", GivenUp), m.e("deadAt", now)), 0), now, GoneProcess)},
		change{former(m.e("waiting", true)), m.leaving(Ready, rescued, -1)},
	)
}

// Batches is documented in [Store].
func (m *Mongo) Batches(ctx context.Context, slot Slot, session bson.ObjectID) (
	found []bson.ObjectID, _ error) {
	groups, err := m.distinct(ctx, "$"+m.at("batch"), append(m.of(slot), m.e("session", session)))
	for _, group := range groups {
		if id, ok := group.Lookup("_id").ObjectIDOK(); ok {
			found = append(found, id)
		}
	}
	return found, err
}

// distinct groups, since the embedded server takes no distinct with a limit of time.
func (m *Mongo) distinct(ctx context.Context, expression any, filter bson.D) ([]bson.Raw, error) {
	return m.aggregate(ctx, d("$match", filter), d("$group", d("_id", expression)))
}

func (m *Mongo) aggregate(ctx context.Context, stages ...bson.D) ([]bson.Raw, error) {
	ctx = alone(ctx)
	found, err := read(m.rows.Aggregate(ctx, stages))(ctx)
	return found, m.failed("find", err)
}

// GiveBack is documented in [Store].
func (m *Mongo) GiveBack(ctx context.Context, session bson.ObjectID, batches []bson.ObjectID) (
	int, error) {
	filter := bson.D{m.is(Claimed), m.e("session", session)}
	if batches != nil {
		filter = append(filter, m.e("batch", in(batches)))
	}
	return m.carryOut(ctx, change{filter, m.leaving(Ready, nil, -1)})
}

// Renew is documented in [Store].
func (m *Mongo) Renew(ctx context.Context, row Row) (int, error) {
	update := bson.D{e("$inc", bson.D{m.e("beat", int64(1))})}
	if row.Mark.Rescued {
		update = append(update, m.unset("waiting"))
	}
	n, err := m.one(alone(ctx), m.claimedBy(row.Mark.Session, row.Mark.Batch, row.ID), update)
	return n, m.failed("update", err)
}

// Leased is documented in [Store].
func (m *Mongo) Leased(ctx context.Context) ([]Row, error) {
	found, _, err := m.find(ctx, bson.D{m.is(Claimed), m.e("leaseMS", d("$gt", int64(0)))},
		options.Find().SetProjection(m.mark()))
	return found, err
}

// Expire is documented in [Store].
func (m *Mongo) Expire(ctx context.Context, now time.Time, row Row, most int64) (int, error) {
	beat := bson.A{row.Mark.Beat}
	if row.Mark.Beat == 0 {
		beat = append(beat, nil) // a hand has taken it out
	}
	filter := append(m.claimedBy(row.Mark.Session, row.Mark.Batch, row.ID), m.e("beat", in(beat)))
	failed := append(m.rescued(), m.e("errors", storedAll(row.Expired(now))))
	update := m.leaving(Ready, failed, 0)
	switch {
	case row.Mark.Waiting:
		update = m.leaving(Ready, m.rescued(), -1)
	case row.Mark.Attempts >= most:
		update = m.leaving(Dead, append(failed, m.e("error", Expired), m.e("deadAt", now)), 0)
	}
	return m.only(alone(ctx), row.ID, filter, update)
}

// Slots is documented in [Store].
func (m *Mongo) Slots(ctx context.Context) (found []Slot, _ error) {
	both := bson.D{e("locks", "$"+m.at("locks")), e("slot", "$"+m.at("slot"))}
	groups, err := m.distinct(ctx, both, bson.D{m.is(Claimed)})
	for _, group := range groups {
		locks, _ := group.Lookup("_id", "locks").StringValueOK()
		if slot, ok := group.Lookup("_id", "slot").StringValueOK(); ok {
			found = append(found, Slot{locks, slot})
		}
	}
	return found, err
}

// Insert is documented in [Store].
func (m *Mongo) Insert(ctx context.Context, docs []any) error {
	_, err := m.rows.InsertMany(ctx, docs)
	return m.failed("insert", err)
}
