package rows

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog/mongocatalog"
)

// Options are the parts of a queue's configuration that its store needs.
type Options struct {
	Field  string
	Filter bson.D
	Due    string // the field with the date of a row; empty: all rows are due
	Key    string // the field whose value makes rows a chain; empty: there are no chains
	Keeps  bool   // old done rows are removed, which needs an index on their times
}

// MostClaimed is the maximum number of rows that Claimed returns.
const MostClaimed = 2000

// Mongo is a Store over a collection of the user. It uses only operators that the embedded server
// supports. In each document it writes only the field Options.Field. [Store] documents the methods
// that have no comment here.
type Mongo struct {
	Options
	rows   *mongo.Collection
	server *mongocatalog.Catalog // sends hello
	sort   bson.D

	transactions atomic.Bool // the server has transactions
	unique       atomic.Bool // the index for the keys of InsertUnique exists
	sharded      atomic.Bool // the server refused a claim because its filter lacks the shard key
}

var _ Store = (*Mongo)(nil)

// NewMongo returns a store over a collection. The store writes with write concern majority, even if
// the collection has another write concern. Otherwise an election could undo a claim, and two
// processes could claim the row.
func NewMongo(coll *mongo.Collection, o Options) *Mongo {
	safe := options.Collection().SetWriteConcern(writeconcern.Majority()).
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary())
	// The contexts of the callers limit the commands. New fails only without a client.
	server, _ := mongocatalog.New(coll.Database().Client(), mongocatalog.Options{
		Database: coll.Database().Name(), CommandTimeout: time.Hour})
	m := &Mongo{Options: o, rows: coll.Clone(safe), server: server}
	if m.Due != "" {
		m.sort = d(m.Due, 1)
	}
	if m.Key != "" {
		m.sort = append(m.sort, e("_id", 1)) // so that all processes have the same order of a key's rows
	}
	return m
}

// Alone returns a copy of ctx without its MongoDB session. Commands with this context are not part
// of a transaction.
func Alone(ctx context.Context) context.Context { return mongo.NewSessionContext(ctx, nil) }

func transacts(ctx context.Context) bool {
	session := mongo.SessionFromContext(ctx)
	return session != nil && session.TransactionRunning()
}

func e(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

func d(key string, value any) bson.D { return bson.D{e(key, value)} }

func (m *Mongo) at(name string) string { return m.Field + "." + name }

func (m *Mongo) e(name string, value any) bson.E { return e(m.at(name), value) }

func (m *Mongo) unset(names ...string) bson.E {
	var all bson.D
	for _, name := range names {
		all = append(all, m.e(name, ""))
	}
	return e("$unset", all)
}

func (m *Mongo) mark() bson.D { return bson.D{e("_id", 1), e(m.Field, 1)} }

func not(condition bson.D) bson.D { return d("$not", condition) }

func in[T any](values []T) bson.D { return d("$in", values) }

// only adds the _id of a row to a filter.
func only(id bson.RawValue, filter bson.D) bson.D {
	return bson.D{e("_id", id), e("$and", bson.A{filter})}
}

// mine combines the given conditions with the filter of the queue.
func (m *Mongo) mine(more ...bson.E) bson.D {
	if len(m.Filter) == 0 {
		return more
	}
	return d("$and", bson.A{m.Filter, bson.D(more)})
}

func (m *Mongo) isReady() bson.E { return m.e("state", d("$in", bson.A{nil, Ready})) }

func (m *Mongo) is(s State) bson.E { return m.e("state", s) }

func (m *Mongo) isDue(at time.Time) bson.E { return e(m.Due, d("$lte", at)) }

func (m *Mongo) wanted(ask Ask) bson.D { return m.mine(m.selected(ask)...) }

// selected returns the conditions of an Ask, without the filter of the queue.
func (m *Mongo) selected(ask Ask) bson.D {
	is := bson.D{m.isReady()}
	if m.Due != "" {
		is = append(is, m.isDue(ask.Due))
	}
	is = append(is, e("$nor", m.oddReady()))
	if len(ask.Held) > 0 {
		is = append(is, e("$or", bson.A{m.notOf(ask.Held), bson.D{m.holds()}}))
	}
	if len(ask.Without) > 0 {
		is = append(is, e("_id", d("$nin", ask.Without)))
	}
	return is
}

func (m *Mongo) claiming(c Claim) bson.D {
	set := bson.D{m.is(Claimed), m.e("locks", c.Locks), m.e("slot", c.Slot),
		m.e("slotFence", c.SlotFence), m.e("session", c.Session), m.e("batch", c.Batch), m.e("at", c.At)}
	if m.Key != "" {
		set = append(set, m.holds())
	}
	return bson.D{
		e("$set", set),
		e("$inc", bson.D{m.e("fence", int64(1)), m.e("attempts", int64(1))}),
		m.unset("notBefore", "cancelled"),
	}
}

func (m *Mongo) Claim(ctx context.Context, c Claim, ask Ask) (*Row, error) {
	doc, err := m.claim(Alone(ctx), c, ask)
	command, _ := errors.AsType[mongo.CommandError](err)
	switch {
	case errors.As(err, new(*HeldError)):
		return nil, err
	case err == mongo.ErrNoDocuments:
		return nil, nil
	case m.Key != "" && command.Code == codeDuplicate:
		return nil, &HeldError{command.Raw.Lookup("keyValue", m.Key)}
	case refuses(err):
		return nil, fmt.Errorf("%w: %w", ErrRefused, m.failed("find, update", err))
	case err != nil:
		return nil, m.failed("find, update", err)
	}
	row := Parse(doc, m.Field)
	return &row, nil
}

// claim claims a row with one command. Some servers, such as MongoDB 4.4, refuse that command in a
// sharded collection, because its filter lacks the shard key. With these servers a claim takes
// three commands.
func (m *Mongo) claim(ctx context.Context, c Claim, ask Ask) (doc bson.Raw, err error) {
	if m.sharded.Load() {
		return m.claimByID(ctx, c, ask)
	}
	opts := options.FindOneAndUpdate().SetReturnDocument(options.After)
	if len(m.sort) > 0 {
		opts.SetSort(m.sort).SetHint(m.order())
	}
	err = hinted(ctx, m.Prepare, func() (err error) {
		doc, err = m.rows.FindOneAndUpdate(ctx, m.wanted(ask), m.claiming(c), opts).Raw()
		return err
	})
	if has(err, codeShardKeyNotFound) {
		m.sharded.Store(true)
		return m.claimByID(ctx, c, ask)
	}
	return doc, err
}

// claimByID reads the first ready row. Then it updates this row by its _id if the row still
// matches, and reads the result. If it fails after the update, the outcome is unknown.
func (m *Mongo) claimByID(ctx context.Context, c Claim, ask Ask) (bson.Raw, error) {
	const races = 10 // because another process may take the row between read and update
	for range races {
		docs, err := m.inOrder(ctx, m.wanted(ask), options.Find().SetLimit(1).SetBatchSize(2))
		if err != nil {
			return nil, err
		}
		if len(docs) == 0 {
			return nil, mongo.ErrNoDocuments
		}
		id := docs[0].Lookup("_id")
		result, err := m.rows.UpdateOne(ctx, only(id, m.wanted(ask)), m.claiming(c))
		if m.Key != "" && has(err, codeDuplicate) {
			return nil, &HeldError{Lookup(docs[0], m.Key)}
		}
		if err != nil {
			return nil, err
		}
		if result.MatchedCount == 0 {
			continue
		}
		doc, err := m.rows.FindOne(ctx, d("_id", id)).Raw()
		if err != nil {
			return nil, fmt.Errorf("read the row that was claimed: %v", err)
		}
		if Parse(doc, m.Field).Mark.Batch != c.Batch {
			return nil, errors.New("the row that was claimed has changed since")
		}
		return doc, nil
	}
	return nil, errors.New("other processes claimed every row first")
}

func (m *Mongo) First(ctx context.Context, ask Ask) (bson.RawValue, error) {
	docs, err := m.inOrder(ctx, m.wanted(ask),
		options.Find().SetLimit(1).SetBatchSize(2).SetProjection(d("_id", 1)))
	if refuses(err) {
		err = fmt.Errorf("%w: %w", ErrQuery, err)
	}
	if err != nil || len(docs) == 0 {
		return bson.RawValue{}, m.failed("find", err)
	}
	return docs[0].Lookup("_id"), nil
}

func (m *Mongo) find(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (
	found []Row, _ error) {
	docs, err := m.docs(ctx, filter, opts)
	for _, doc := range docs {
		found = append(found, Parse(doc, m.Field))
	}
	return found, m.failed("find", err)
}

func (m *Mongo) docs(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (
	docs []bson.Raw, err error) {
	ctx = Alone(ctx)
	err = hinted(ctx, m.Prepare, func() error {
		docs, err = read(m.rows.Find(ctx, filter, opts))(ctx)
		return err
	})
	return docs, err
}

func read(cursor *mongo.Cursor, err error) func(context.Context) ([]bson.Raw, error) {
	return func(ctx context.Context) (docs []bson.Raw, _ error) {
		if err == nil {
			err = cursor.All(ctx, &docs)
		}
		return docs, err
	}
}

func (m *Mongo) End(ctx context.Context, endings ...Ending) (int, error) {
	changes := make([]change, len(endings))
	for i, end := range endings {
		changes[i] = change{end.ID, m.before(end), m.ending(end)}
	}
	return m.carryOut(ctx, "update", changes...)
}

// before returns the filter for the row and the claim that an ending names. If the ending makes the
// row Ready or Retrying, the filter excludes a cancelled row.
func (m *Mongo) before(end Ending) bson.D {
	is := bson.D{e("_id", end.ID), m.is(Claimed), m.e("session", end.Session), m.e("batch", end.Batch)}
	if end.To == Retrying || end.To == Ready {
		is = append(is, m.e("cancelled", d("$ne", true)))
	}
	return is
}

// ending returns the update that ends a claim. The update keeps the fence and the batch.
func (m *Mongo) ending(end Ending) bson.D {
	set := bson.D{m.e("attempts", end.Attempts)}
	if end.Error != "" {
		set = append(set, m.e("error", end.Error), m.e("errors", append([]Failure{}, end.Failures...)))
	}
	unset := []string{"locks", "slot", "slotFence", "session"}
	switch end.To {
	case Ready: // no state, like a new row: the index then returns both by their age
		unset = append(unset, "state")
	case Retrying:
		set = append(set, m.is(Retrying), m.e("notBefore", end.NotBefore))
	case Dead:
		set = append(set, m.is(Dead), m.e("deadAt", end.At))
		unset = append(unset, "cancelled", "holds")
	case Done:
		set = append(set, m.is(Done), m.e("doneAt", end.At))
		unset = append(unset, "cancelled", "holds", "error")
	}
	return bson.D{e("$set", set), m.unset(unset...)}
}

func (m *Mongo) Claimed(ctx context.Context, slot Slot) ([]Row, error) {
	locks := bson.A{slot.Locks, "", nil}
	is := bson.D{m.is(Claimed), m.e("slot", slot.Name), m.e("locks", in(locks)),
		e("$nor", m.oddState())}
	return m.find(ctx, is, options.Find().SetLimit(MostClaimed).SetBatchSize(MostClaimed+1).
		SetProjection(m.mark()))
}

func (m *Mongo) Read(ctx context.Context, id bson.RawValue) (*Row, error) {
	found, err := m.find(ctx, d("_id", id), options.Find())
	if len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func (m *Mongo) Wake(ctx context.Context, now time.Time) (int, error) {
	sound := e("$nor", bson.A{d(m.at("state"), d("$type", "array"))})
	due := bson.D{m.is(Retrying), m.e("notBefore", d("$lte", now)), sound}
	ready := bson.D{m.unset("state", "notBefore")}
	byHand := change{filter: bson.D{m.is(Ready), sound}, update: bson.D{m.unset("state")}}
	return m.changeAll(ctx, change{filter: due, update: ready}, byHand)
}

// Slots uses $group, because the command distinct has no time limit on the embedded server.
func (m *Mongo) Slots(ctx context.Context) (found []Slot, _ error) {
	both := bson.D{e("locks", "$"+m.at("locks")), e("slot", "$"+m.at("slot"))}
	groups, err := m.aggregate(ctx, d("$match", bson.D{m.is(Claimed)}), d("$group", d("_id", both)))
	for _, group := range groups {
		locks, _ := group.Lookup("_id", "locks").StringValueOK()
		if slot, ok := group.Lookup("_id", "slot").StringValueOK(); ok {
			found = append(found, Slot{locks, slot})
		}
	}
	return found, err
}

func (m *Mongo) aggregate(ctx context.Context, stages ...bson.D) ([]bson.Raw, error) {
	ctx = Alone(ctx)
	found, err := read(m.rows.Aggregate(ctx, stages))(ctx)
	return found, m.failed("find", err)
}

func (m *Mongo) Later(ctx context.Context, from time.Time, n int) (found []Event, _ error) {
	filter := m.mine(m.isReady(), e(m.Due, d("$gte", from)))
	docs, err := m.inOrder(ctx, filter, options.Find().SetLimit(int64(n)).
		SetBatchSize(int32(n+1)).SetProjection(bson.D{e("_id", 1), e(m.Due, 1)}))
	for _, doc := range docs {
		found = append(found, Event{Arrived, doc.Lookup("_id"), dateIn(doc, m.Due)})
	}
	return found, m.failed("find", err)
}

// Lookup returns the value of a dotted field, or a zero value if the document has no such field.
func Lookup(doc bson.Raw, path string) bson.RawValue {
	return doc.Lookup(strings.Split(path, ".")...)
}

func dateIn(doc bson.Raw, path string) time.Time {
	at, _ := Lookup(doc, path).TimeOK()
	return at.UTC()
}

func (m *Mongo) Now(ctx context.Context) (time.Time, error) {
	_, err := m.server.Hello(Alone(ctx))
	now := m.server.ListingTime()
	if err == nil && now.IsZero() {
		err = errors.New("the server's hello has no localTime")
	}
	return now.UTC(), err
}

func (m *Mongo) Insert(ctx context.Context, docs []any) error {
	_, err := m.rows.InsertMany(ctx, docs)
	return m.failed("insert", err)
}

// SettingsCollection is the collection with the pause switches of queues. It is in the database of
// the rows.
const SettingsCollection = "distlock_settings"

func (m *Mongo) settings() *mongo.Collection {
	return m.rows.Database().Collection(SettingsCollection, options.Collection().
		SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary()))
}

func (m *Mongo) Paused(ctx context.Context, queue string) (bool, error) {
	raw, err := m.settings().FindOne(Alone(ctx), d("_id", queue)).Raw()
	if err != nil && err != mongo.ErrNoDocuments {
		return false, m.failedOn(SettingsCollection, "find", err)
	}
	v := raw.Lookup("stopped")
	stopped, ok := v.BooleanOK()
	if !ok && !v.IsZero() {
		return false, fmt.Errorf("%s: the field \"stopped\" of %q is a %s, not a boolean",
			SettingsCollection, queue, v.Type)
	}
	return stopped, nil
}

// SetPaused pauses or resumes the queue with the given name.
func (m *Mongo) SetPaused(ctx context.Context, queue string, paused bool) error {
	ctx = Alone(ctx)
	var err error
	if paused {
		_, err = m.settings().UpdateOne(ctx, d("_id", queue), d("$set", d("stopped", true)),
			options.UpdateOne().SetUpsert(true))
	} else {
		_, err = m.settings().DeleteOne(ctx, d("_id", queue))
	}
	return m.failedOn(SettingsCollection, "insert, update, remove", err)
}
