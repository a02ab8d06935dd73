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

func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

func (m *Mongo) at(name string) string { return m.field + "." + name }

func not(condition bson.D) bson.D { return bson.D{e("$not", condition)} }

func in[T any](values []T) bson.D { return bson.D{e("$in", values)} }

// mine is what the user calls the rows of the queue, and more.
func (m *Mongo) mine(more ...bson.E) bson.D {
	if len(m.filter) == 0 {
		return more
	}
	return bson.D{e("$and", bson.A{m.filter, bson.D(more)})}
}

func (m *Mongo) isReady() bson.E { return e(m.at("state"), bson.D{e("$in", bson.A{nil, Ready})}) }

// isDocument is the field, or none: what else a user keeps there, null included, is no claim.
func (m *Mongo) isDocument() bson.E {
	return e("$or", bson.A{bson.D{e(m.field, bson.D{e("$exists", false)})},
		bson.D{e(m.field, bson.D{e("$type", "object"), e("$not", bson.D{e("$type", "array")})})}})
}

func (m *Mongo) is(s State) bson.E { return e(m.at("state"), s) }

// wanted is what is ready and asked for.
func (m *Mongo) wanted(ask *Ask) bson.D {
	is := bson.D{m.isReady()}
	if m.due != "" {
		is = append(is, m.isDue(ask.due()))
	}
	is = append(append(is, m.isDocument()), m.chained(ask)...)
	if without := ask.without(); len(without) > 0 {
		is = append(is, e("_id", bson.D{e("$nin", without)}))
	}
	return m.mine(is...)
}

func (m *Mongo) claiming(c Claim) bson.D {
	set, unset := bson.D{}, bson.D{e(m.at("notBefore"), "")}
	if c.Lease > 0 {
		set = bson.D{e(m.at("leaseMS"), c.Lease.Milliseconds()), e(m.at("beat"), int64(0))}
	} else {
		unset = append(unset, e(m.at("leaseMS"), ""), e(m.at("beat"), ""))
	}
	if m.chain.key != "" {
		set = append(set, m.holds())
	}
	if c.Waiting {
		set = append(set, e(m.at("waiting"), true))
	} else {
		unset = append(unset, e(m.at("waiting"), ""))
	}
	return bson.D{
		e("$set", append(set,
			m.is(Claimed), e(m.at("locks"), c.Locks), e(m.at("slot"), c.Slot), e(m.at("slotFence"), c.SlotFence),
			e(m.at("session"), c.Session), e(m.at("batch"), c.Batch),
			e(m.at("at"), c.At),
		)),
		e("$inc", bson.D{e(m.at("fence"), int64(1)), e(m.at("attempts"), int64(1))}),
		e("$unset", unset),
	}
}

// leaving takes a claim out of a row. Fence, attempts and batch stay.
func (m *Mongo) leaving(to State, set bson.D, attempts int64, unset ...string) bson.D {
	gone := bson.D{e(m.at("locks"), ""), e(m.at("slot"), ""), e(m.at("slotFence"), ""),
		e(m.at("session"), ""), e(m.at("waiting"), "")}
	for _, name := range unset {
		gone = append(gone, e(m.at(name), ""))
	}
	if to == Dead || to == Done {
		gone = append(gone, e(m.at("cancelled"), ""))
	}
	if to.Frees(m.chain.letGo) {
		gone = append(gone, e(m.at("holds"), ""))
	}
	if to == Ready { // as a row that was never claimed: the index gives both by their age
		gone = append(gone, e(m.at("state"), ""))
	} else {
		set = append(bson.D{m.is(to)}, set...)
	}
	update := bson.D{e("$unset", gone)}
	if len(set) > 0 {
		update = append(update, e("$set", set))
	}
	if attempts != 0 {
		update = append(update, e("$inc", bson.D{e(m.at("attempts"), attempts)}))
	}
	return update
}

// Candidates is documented in [Store].
func (m *Mongo) Candidates(ctx context.Context, n, skip int, ask *Ask) ([]Row, []Malformed, error) {
	opts := options.Find().SetLimit(int64(n)).SetBatchSize(int32(n + 1)).
		SetProjection(m.known())
	if skip > 0 {
		opts.SetSkip(int64(skip))
	}
	docs, err := m.inOrder(ctx, m.wanted(ask), opts)
	if err != nil {
		err = m.failed("find", err)
		if refuses(err) {
			err = &QueryError{err}
		}
		return nil, nil, err
	}
	found, bad := m.parse(docs)
	return found, bad, nil
}

func (m *Mongo) find(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (
	found []Row, bad []Malformed, err error) {
	docs, err := m.docs(ctx, filter, opts)
	if err != nil {
		return nil, nil, m.failed("find", err)
	}
	found, bad = m.parse(docs)
	return found, bad, nil
}

// docs are the documents of a query.
func (m *Mongo) docs(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (docs []bson.Raw, err error) {
	cursor, err := m.rows.Find(ctx, filter, opts)
	if err == nil {
		err = cursor.All(ctx, &docs)
	}
	return docs, err
}

func (m *Mongo) parse(docs []bson.Raw) (found []Row, bad []Malformed) {
	for _, doc := range docs {
		if row, malformed := Parse(doc, m.field); malformed != nil {
			bad = append(bad, *malformed)
		} else {
			found = append(found, row)
		}
	}
	return found, bad
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
	found, _, err := m.find(ctx, bson.D{e("_id", in(ids)), m.is(Claimed), e(m.at("batch"), c.Batch)}, opts)
	return found, err
}

// MarkOne is documented in [Store].
func (m *Mongo) MarkOne(ctx context.Context, c Claim, ask *Ask) (*Row, error) {
	opts := options.FindOneAndUpdate().SetReturnDocument(options.After)
	if len(m.sort) > 0 {
		opts.SetSort(m.sort)
	}
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
	return bson.D{m.is(Claimed), e(m.at("slot"), slot.Name), e(m.at("locks"), bson.D{e("$in", bson.A{slot.Locks, nil})})}
}

// claimedBy is what every ending names.
func (m *Mongo) claimedBy(session, batch bson.ObjectID, ids ...bson.RawValue) bson.D {
	id := e("_id", in(ids))
	if len(ids) == 1 {
		id = e("_id", ids[0])
	}
	return bson.D{id, m.is(Claimed), e(m.at("session"), session), e(m.at("batch"), batch)}
}

// before is what an ending matches.
func (m *Mongo) before(end Ending, ids ...bson.RawValue) bson.D {
	is := m.claimedBy(end.Session, end.Batch, ids...)
	if end.To == Retrying { // a row that was cancelled is not tried again
		is = append(is, e(m.at("cancelled"), bson.D{e("$ne", true)}))
	}
	return is
}

func (m *Mongo) ending(end Ending) bson.D {
	switch end.To {
	case Ready:
		return m.leaving(Ready, nil, -1)
	case Retrying:
		if end.Uncounted {
			return m.leaving(Retrying, bson.D{e(m.at("notBefore"), end.NotBefore)}, -1)
		}
		return m.leaving(Retrying, bson.D{e(m.at("notBefore"), end.NotBefore), e(m.at("error"), end.Error),
			e(m.at("errors"), storedAll(end.Failures))}, 0)
	case Dead:
		return m.leaving(Dead, bson.D{e(m.at("error"), end.Error), e(m.at("errors"), storedAll(end.Failures)),
			e(m.at("deadAt"), end.At)}, 0)
	}
	return m.leaving(Done, bson.D{e(m.at("doneAt"), end.At)}, 0, "error")
}

// Finish is documented in [Store].
func (m *Mongo) Finish(ctx context.Context, endings []Ending) (int, error) {
	if len(endings) == 1 {
		return m.FinishIn(ctx, endings[0])
	}
	type kind struct { // rows of one statement
		session, batch bson.ObjectID
		to             State
		notBefore      time.Time
		text           string
		remove         bool
		uncounted      bool
		at             time.Time
		failures       string
	}
	groups := map[kind][]Ending{}
	var order []kind
	for _, end := range endings {
		k := kind{end.Session, end.Batch, end.To, end.NotBefore, end.Error, end.Delete, end.Uncounted, end.At,
			fmt.Sprint(end.Failures)}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], end)
	}
	var changes []change
	for _, k := range order {
		var ids []bson.RawValue
		for _, end := range groups[k] {
			ids = append(ids, end.ID)
		}
		filter := m.before(groups[k][0], ids...)
		if k.remove {
			changes = append(changes, change{filter: filter})
			continue
		}
		changes = append(changes, change{filter, m.ending(groups[k][0])})
	}
	return m.carryOut(ctx, changes...)
}

// FinishIn is documented in [Store].
func (m *Mongo) FinishIn(ctx context.Context, end Ending) (int, error) {
	filter := m.before(end, end.ID)
	if end.Delete {
		n, err := m.one(ctx, filter, nil)
		return n, m.failed("remove", err)
	}
	return m.only(ctx, end.ID, filter, m.ending(end))
}

// only changes one row.
func (m *Mongo) only(ctx context.Context, id bson.RawValue, filter, update bson.D) (int, error) {
	n, err := m.one(ctx, filter, update)
	if refuses(err) {
		err = &RefusedError{[]Refused{{id, catalog.Shown(err)}}}
	}
	return n, m.failed("update", err)
}

// Current is documented in [Store].
func (m *Mongo) Current(ctx context.Context, ids []bson.RawValue) ([]Row, error) {
	found, _, err := m.find(ctx, bson.D{e("_id", in(ids))},
		options.Find().SetProjection(bson.D{e("_id", 1), e(m.field, 1)}))
	return found, err
}

// rescued is said of a row that is taken from who has claimed it.
func (m *Mongo) rescued() bson.D { return bson.D{e(m.at("rescued"), true)} }

// Tidy is documented in [Store].
func (m *Mongo) Tidy(ctx context.Context, now time.Time, slot Slot, fence, most int64) (int, error) {
	last := bson.D{e("$gte", most)}
	former := func(more ...bson.E) bson.D { // a number that a hand has taken out is a small one
		return append(append(m.of(slot), e(m.at("slotFence"), not(bson.D{e("$gte", fence)}))), more...)
	}
	begun, full := e(m.at("waiting"), bson.D{e("$ne", true)}), m.noRoom()
	room := e(full.Key, not(bson.D{e("$exists", true)}))
	due := bson.D{m.is(Retrying), e(m.at("notBefore"), bson.D{e("$lte", now)})}
	rescued := m.rescued()
	return m.carryOut(ctx,
		change{due, bson.D{e("$unset", bson.D{e(m.at("state"), ""), e(m.at("notBefore"), "")})}},
		change{bson.D{m.is(Ready)}, bson.D{e("$unset", bson.D{e(m.at("state"), "")})}}, // by a hand
		change{former(begun, e(m.at("attempts"), not(last)), full), m.leaving(Ready, rescued, 0)},
		change{former(begun, e(m.at("attempts"), not(last)), room),
			m.pushing(m.leaving(Ready, rescued, 0), now, GoneProcess)},
		change{former(begun, e(m.at("attempts"), last)), m.pushing(m.leaving(Dead,
			append(rescued, e(m.at("error"), GivenUp), e(m.at("deadAt"), now)), 0), now, GoneProcess)},
		change{former(e(m.at("waiting"), true)), m.leaving(Ready, rescued, -1)},
	)
}

// Batches is documented in [Store].
func (m *Mongo) Batches(ctx context.Context, slot Slot, session bson.ObjectID) ([]bson.ObjectID, error) {
	var found []bson.ObjectID
	err := m.distinct(ctx, "$"+m.at("batch"), append(m.of(slot), e(m.at("session"), session)),
		func(v bson.RawValue) {
			if id, ok := v.ObjectIDOK(); ok {
				found = append(found, id)
			}
		})
	return found, err
}

// distinct groups, since the embedded server takes no distinct with a limit of time.
func (m *Mongo) distinct(ctx context.Context, expression any, filter bson.D, each func(bson.RawValue)) error {
	cursor, err := m.rows.Aggregate(ctx, bson.A{
		bson.D{e("$match", filter)}, bson.D{e("$group", bson.D{e("_id", expression)})},
	})
	if err != nil {
		return m.failed("find", err)
	}
	var groups []bson.Raw
	if err := cursor.All(ctx, &groups); err != nil {
		return m.failed("find", err)
	}
	for _, group := range groups {
		each(group.Lookup("_id"))
	}
	return nil
}

// GiveBack is documented in [Store].
func (m *Mongo) GiveBack(ctx context.Context, session bson.ObjectID, batches []bson.ObjectID) (int, error) {
	filter := bson.D{m.is(Claimed), e(m.at("session"), session)}
	if batches != nil {
		filter = append(filter, e(m.at("batch"), in(batches)))
	}
	return m.carryOut(ctx, change{filter, m.leaving(Ready, nil, -1)})
}

// Renew is documented in [Store].
func (m *Mongo) Renew(ctx context.Context, row Row) (int, error) {
	result, err := m.rows.UpdateOne(ctx, m.claimedBy(row.Mark.Session, row.Mark.Batch, row.ID),
		bson.D{e("$inc", bson.D{e(m.at("beat"), int64(1))}), e("$unset", bson.D{e(m.at("waiting"), "")})})
	if err != nil {
		return 0, m.failed("update", err)
	}
	return int(result.MatchedCount), nil
}

// Leased is documented in [Store].
func (m *Mongo) Leased(ctx context.Context) ([]Row, error) {
	found, _, err := m.find(ctx, bson.D{m.is(Claimed), e(m.at("leaseMS"), bson.D{e("$gt", int64(0))})},
		options.Find().SetProjection(bson.D{e("_id", 1), e(m.field, 1)}))
	return found, err
}

// Expire is documented in [Store].
func (m *Mongo) Expire(ctx context.Context, now time.Time, row Row, most int64) (int, error) {
	beat := bson.A{row.Mark.Beat}
	if row.Mark.Beat == 0 {
		beat = append(beat, nil) // a hand has taken it out
	}
	filter := append(m.claimedBy(row.Mark.Session, row.Mark.Batch, row.ID), e(m.at("beat"), bson.D{e("$in", beat)}))
	failed := append(m.rescued(), e(m.at("errors"), storedAll(row.Expired(now))))
	update := m.leaving(Ready, failed, 0)
	switch {
	case row.Mark.Waiting:
		update = m.leaving(Ready, m.rescued(), -1)
	case row.Mark.Attempts >= most:
		update = m.leaving(Dead, append(failed, e(m.at("error"), Expired), e(m.at("deadAt"), now)), 0)
	}
	return m.only(ctx, row.ID, filter, update)
}

// Slots is documented in [Store].
func (m *Mongo) Slots(ctx context.Context) ([]Slot, error) {
	var found []Slot
	both := bson.D{e("locks", "$"+m.at("locks")), e("slot", "$"+m.at("slot"))}
	err := m.distinct(ctx, both, bson.D{m.is(Claimed)}, func(v bson.RawValue) {
		group, _ := v.DocumentOK()
		locks, _ := group.Lookup("locks").StringValueOK()
		if slot, ok := group.Lookup("slot").StringValueOK(); ok {
			found = append(found, Slot{locks, slot})
		}
	})
	return found, err
}

// Count is documented in [Store].
func (m *Mongo) Count(ctx context.Context) (Counts, error) {
	var c Counts
	ready := bson.D{m.isReady()}
	var later bson.D // nil: none is
	if m.due != "" {
		now, err := m.Now(ctx)
		if err != nil {
			return Counts{}, err
		}
		due := m.isDue(now)
		ready, later = append(ready, due), bson.D{m.isReady(), e(m.due, bson.D{e("$not", due.Value)})}
	}
	for _, one := range []struct {
		filter bson.D
		into   *int64
	}{{ready, &c.Ready}, {later, &c.Later}, {bson.D{m.is(Claimed)}, &c.Claimed},
		{bson.D{m.is(Retrying)}, &c.Retrying}, {bson.D{m.is(Dead)}, &c.Dead}, {bson.D{m.is(Done)}, &c.Done}} {
		if one.filter == nil {
			continue
		}
		n, err := m.rows.CountDocuments(ctx, m.mine(one.filter...))
		if err != nil {
			return Counts{}, m.failed("find", err)
		}
		*one.into = n
	}
	return c, nil
}

// Insert is documented in [Store].
func (m *Mongo) Insert(ctx context.Context, docs []any) error {
	_, err := m.rows.InsertMany(ctx, docs)
	return m.failed("insert", err)
}
