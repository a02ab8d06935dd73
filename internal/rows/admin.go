package rows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// over returns a filter for rows that reached the given state before the given time. The state must
// be Dead or Done. If the time is zero, the filter selects all rows in the state.
func (m *Mongo) over(state State, before time.Time, more ...bson.E) bson.D {
	is := append(bson.D{m.is(state)}, more...)
	if !before.IsZero() {
		stamp := map[State]string{Dead: "deadAt", Done: "doneAt"}[state]
		is = append(is, m.e(stamp, d("$lt", before)))
	}
	return m.mine(is...)
}

// List iterates over the rows in a state with their documents, in the server's order. If List
// the state of a row is a list, it yields the row with a *Malformed. It sends one command per
// hundred rows.
func (m *Mongo) List(ctx context.Context, state State) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		ctx, is := Alone(ctx), m.is(state)
		if state == Ready {
			is = m.isReady()
		}
		cursor, err := m.rows.Find(ctx, m.mine(is), options.Find().SetBatchSize(lotSize/10))
		if err != nil {
			yield(Row{}, m.failed("find", err))
			return
		}
		defer func() { _ = cursor.Close(context.WithoutCancel(ctx)) }() // the server closes it anyway
		for cursor.Next(ctx) {
			row := Parse(append(bson.Raw(nil), cursor.Current...), m.Field)
			if err = nil; row.Mark.State != state {
				one := m.problem(row.Doc)
				err = &one
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

// Retry makes dead rows ready and resets their attempts. It keeps the stored failures.
func (m *Mongo) Retry(ctx context.Context, ids []bson.RawValue) (int, error) {
	return m.each(ctx, ids, m.mine(m.is(Dead)), m.unset("state", "attempts", "deadAt"))
}

// RetryAll is Retry for all dead rows.
func (m *Mongo) RetryAll(ctx context.Context) (int, error) {
	return m.changeAll(ctx, change{filter: m.mine(m.is(Dead)),
		update: bson.D{m.unset("state", "attempts", "deadAt")}})
}

// Remove removes the documents of rows with the given _ids. It removes only rows that reached the
// given state, Dead or Done, before the given time. If the time is zero, any time matches.
func (m *Mongo) Remove(ctx context.Context, state State, before time.Time, ids []bson.RawValue) (
	int, error) {
	return m.carryOut(Alone(ctx), "remove", change{filter: m.over(state, before, e("_id", in(ids)))})
}

func (m *Mongo) Purge(ctx context.Context, state State, before time.Time) (int, error) {
	for {
		ids, err := m.lot(ctx, m.over(state, before))
		if err != nil || len(ids) == 0 {
			return 0, err
		}
		n, err := m.Remove(ctx, state, before, ids)
		if n > 0 || err != nil { // otherwise another process has removed these rows
			return n, err
		}
	}
}

func (m *Mongo) Cancel(ctx context.Context, now time.Time, id bson.RawValue) (State, error) {
	ctx = Alone(ctx)
	waits := m.mine(e("_id", id), m.e("state", in(bson.A{nil, Ready, Retrying})),
		e("$nor", m.oddReady()[:2]))
	dead := bson.D{e("$set", bson.D{m.is(Dead), m.e("error", Cancelled), m.e("deadAt", now)}),
		m.unset("notBefore", "holds", "cancelled")}
	works := bson.D{e("_id", id), m.is(Claimed)} // even if its handler has changed fields of Filter
	marked := d("$set", bson.D{m.e("cancelled", true)})
	const rounds = 3 // because the row's claim may end between two commands
	for range rounds {
		if n, err := m.carryOut(ctx, "update", change{id, waits, dead}); n > 0 || err != nil {
			return Dead, err
		}
		if n, err := m.carryOut(ctx, "update", change{id, works, marked}); n > 0 || err != nil {
			return Claimed, err
		}
		row, err := m.Read(ctx, id)
		if err != nil || row == nil || row.Mark.State == Dead || row.Mark.State == Done {
			return "", err
		}
	}
	return "", fmt.Errorf("row %s does not belong to the queue, or is repeatedly claimed and "+
		"given back", Text(id))
}

func (m *Mongo) Count(ctx context.Context, most int64) (depth Depth, err error) {
	ctx = Alone(ctx)
	var ask Ask
	if m.Due != "" {
		if ask.Due, err = m.Now(ctx); err != nil {
			return Depth{}, err
		}
	}
	count := func(into *int64, filter ...bson.E) {
		if err != nil {
			return
		}
		command := bson.D{e("count", m.rows.Name()), e("query", m.mine(filter...))}
		if most > 0 {
			command = append(command, e("limit", most))
		}
		var reply bson.Raw
		reply, err = m.rows.Database().RunCommand(ctx, command).Raw()
		*into, _ = reply.Lookup("n").AsInt64OK()
	}
	sound := e("$nor", m.oddState())
	count(&depth.Claimed, m.is(Claimed), sound)
	count(&depth.Retrying, m.is(Retrying), sound)
	count(&depth.Dead, m.is(Dead)) // without sound, so that the index alone can count many rows
	if most == 0 {
		count(&depth.Done, m.is(Done))
	}
	count(&depth.Ready, m.selected(ask)...)
	count(&depth.Odd, e("$or", append(m.oddState(), bson.D{m.isReady(), e("$or", m.oddReady())})))
	if m.Due != "" {
		count(&depth.Later, m.isReady(), e("$nor", append(m.oddReady(), bson.D{m.isDue(ask.Due)})))
	}
	if err == nil && most > 0 {
		err = m.ages(ctx, &depth, ask)
	}
	if err != nil {
		return Depth{}, m.failed("find", err)
	}
	return depth, nil
}

// ages sets the fields Since and Retry of depth. It sends two commands.
func (m *Mongo) ages(ctx context.Context, depth *Depth, ask Ask) error {
	head := func(field string) *options.FindOptionsBuilder {
		return options.Find().SetLimit(1).SetBatchSize(2).SetProjection(d(field, 1))
	}
	first, err := m.inOrder(ctx, m.wanted(ask), head(cmp.Or(m.Due, "_id")))
	if err != nil {
		return err
	}
	for _, doc := range first {
		if id, ok := doc.Lookup("_id").ObjectIDOK(); m.Due != "" {
			depth.Since = dateIn(doc, m.Due)
		} else if ok {
			depth.Since = id.Timestamp().UTC()
		}
	}
	at := m.at("notBefore")
	first, err = m.docs(ctx, m.mine(m.is(Retrying), m.e("notBefore", d("$type", "date"))),
		head(at).SetSort(d(at, 1)))
	for _, doc := range first {
		depth.Retry = dateIn(doc, at)
	}
	return err
}

// A change updates the rows that match its filter. If the update is nil, it removes them.
type change struct {
	id             bson.RawValue // of the only row that can match; zero if several can
	filter, update bson.D
}

// carryOut sends the changes as one command, in the transaction of ctx if there is one. It returns
// the number of changed rows. The parameter action is the necessary privilege. If the server refuses
// to change some rows, the error matches ErrRefused.
func (m *Mongo) carryOut(ctx context.Context, action string, changes ...change) (n int, _ error) {
	if len(changes) == 0 {
		return 0, nil
	}
	models := make([]mongo.WriteModel, len(changes))
	for i, c := range changes {
		if c.update == nil {
			models[i] = mongo.NewDeleteManyModel().SetFilter(c.filter)
			continue
		}
		models[i] = mongo.NewUpdateManyModel().SetFilter(c.filter).SetUpdate(c.update)
		if !c.id.IsZero() { // the driver repeats such an update after an election
			models[i] = mongo.NewUpdateOneModel().SetFilter(c.filter).SetUpdate(c.update)
		}
	}
	result, err := m.rows.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	if result != nil {
		n = int(result.MatchedCount + result.DeletedCount)
	}
	bulk, _ := errors.AsType[mongo.BulkWriteException](err)
	switch {
	case transacts(ctx) && has(err, codeIllegal, codeNoTransactions):
		return 0, fmt.Errorf("%w: %w", ErrNoTransactions, catalog.Shown(err))
	case transacts(ctx) || !refuses(err) || len(bulk.WriteErrors) == 0 || bulk.WriteConcernError != nil:
		return n, m.failed(action, err)
	}
	first := bulk.WriteErrors[0]
	return n, fmt.Errorf("%w: %d changes failed, the first of them at row %s: %v", ErrRefused,
		len(bulk.WriteErrors), Text(changes[first.Index].id), catalog.Shown(first))
}

// each changes the rows with the given _ids that match the filter.
func (m *Mongo) each(ctx context.Context, ids []bson.RawValue, filter bson.D, update ...bson.E) (
	int, error) {
	changes := make([]change, len(ids))
	for i, id := range ids {
		changes[i] = change{id, only(id, filter), update}
	}
	return m.carryOut(Alone(ctx), "update", changes...)
}

// changeAll carries out the changes, which are updates, with one command. A server that refuses to
// change a row may also leave other rows of the same update unchanged. So if it refuses a row of
// the first change, changeAll changes the rest one by one, with two commands per thousand rows,
// until it makes no progress.
func (m *Mongo) changeAll(ctx context.Context, first change, more ...change) (int, error) {
	n, err := m.carryOut(Alone(ctx), "update", append([]change{first}, more...)...)
	if !errors.Is(err, ErrRefused) {
		return n, err
	}
	for {
		ids, err := m.lot(ctx, first.filter)
		if err != nil || len(ids) == 0 {
			return n, err
		}
		one, err := m.each(ctx, ids, first.filter, first.update...)
		if n += one; one == 0 || err != nil && !errors.Is(err, ErrRefused) {
			return n, err
		}
	}
}

// lotSize is the maximum number of rows that one command changes or removes.
const lotSize = 1000

func (m *Mongo) lot(ctx context.Context, filter bson.D) (ids []bson.RawValue, _ error) {
	docs, err := m.docs(ctx, filter,
		options.Find().SetLimit(lotSize).SetBatchSize(lotSize+1).SetProjection(d("_id", 1)))
	for _, doc := range docs {
		ids = append(ids, doc.Lookup("_id"))
	}
	return ids, m.failed("find", err)
}

// oddAtOnce is the maximum number of rows that each of the two queries of Odd returns.
const oddAtOnce = 10

// ManyKeys describes the problem of a row with a list as its key. The row would be in several
// chains.
const ManyKeys = "is a list, and Config.Key needs one value"

// A part describes one element of a row's field. If an element has a wrong type or value, the row
// is odd: no process claims or ends it.
type part struct {
	name string
	kind bson.Type // TypeInt64 allows any number type, from zero to mostCount
	of   State     // rows in this state need the element; empty: it is optional
}

var parts = []part{
	{"fence", bson.TypeInt64, ""}, {"attempts", bson.TypeInt64, ""}, {"slotFence", bson.TypeInt64, ""},
	{"slot", bson.TypeString, Claimed}, {"locks", bson.TypeString, ""},
	{"session", bson.TypeObjectID, Claimed}, {"batch", bson.TypeObjectID, Claimed},
	{"notBefore", bson.TypeDateTime, Retrying},
}

const mostCount = 1 << 53

func count(in bson.Raw, name string) int64 {
	n, _ := in.Lookup(name).AsInt64OK()
	return n
}

func there(condition bson.D) bson.D { return append(d("$exists", true), condition...) }

// wrong returns conditions for rows in which the given part has a wrong type or value. A list meets
// a condition if one of its elements meets the condition. Lists therefore need their own condition.
func (m *Mongo) wrong(p part) bson.A {
	name, is := m.at(p.name), bson.D{}
	if p.of != "" {
		is = bson.D{m.is(p.of)}
	}
	sound := d("$type", p.kind)
	switch {
	case p.kind == bson.TypeInt64:
		sound = bson.D{e("$type", bson.A{"int", "long", "double"}), e("$gte", 0),
			e("$lte", int64(mostCount))}
	case p.name == "slot": // a regular expression ignores the collation of the collection
		sound = d("$regex", "^"+SlotPrefix)
	}
	bad := not(sound)
	if p.of == "" {
		bad = there(bad)
	}
	return bson.A{append(slices.Clip(is), e(name, d("$type", "array"))),
		append(slices.Clip(is), e(name, bad))}
}

// oddReady returns conditions for ready rows that can never be claimed.
func (m *Mongo) oddReady() bson.A {
	is := bson.A{
		d(m.Field, there(not(d("$type", "object")))),
		d(m.Field, d("$type", "array")), d(m.at("state"), d("$type", "array")),
	}
	for _, p := range parts {
		if p.of == "" {
			is = append(is, m.wrong(p)...)
		}
	}
	for _, path := range paths(m.Key) {
		is = append(is, d(path, d("$type", "array")))
	}
	if m.Due != "" {
		is = append(is, d(m.Due, there(not(d("$type", bson.A{"date", "null"})))))
	}
	return is
}

// oddState returns conditions for rows that are not ready, and can never be claimed or ended.
func (m *Mongo) oddState() bson.A {
	known := bson.A{nil, Ready, Claimed, Retrying, Dead, Done}
	is := bson.A{d(m.at("state"), d("$nin", known)), d(m.at("state"), d("$type", "array"))}
	for _, p := range parts {
		for _, wrong := range m.wrong(p) {
			if p.of == "" {
				wrong = append(bson.D{m.e("state", in([]State{Claimed, Retrying}))}, wrong.(bson.D)...)
			}
			is = append(is, wrong)
		}
	}
	return is
}

func (m *Mongo) Odd(ctx context.Context, among int) (bad []Malformed, _ error) {
	docs, err := m.docs(ctx, m.mine(e("$or", m.oddState())),
		options.Find().SetLimit(oddAtOnce).SetProjection(m.mark()))
	if err != nil {
		return nil, m.failed("find", err)
	}
	shown := m.mark()
	for _, path := range []string{m.Key, m.Due} {
		if root, _, _ := strings.Cut(path, "."); root != "" && root != "_id" && root != m.Field {
			shown = append(shown, e(root, 1))
		}
	}
	ready, err := m.aggregate(ctx,
		d("$match", m.mine(m.isReady())), d("$limit", cmp.Or(among, math.MaxInt32)),
		d("$match", bson.D{e("$or", m.oddReady()), e("$nor", m.oddState())}), // not listed above
		d("$limit", oddAtOnce), d("$project", shown))
	for _, doc := range append(docs, ready...) {
		bad = append(bad, m.problem(doc))
	}
	return bad, err
}

// problem describes an odd row. It names the elements of the row's field that are missing, or whose
// type differs from the type that a claim writes.
func (m *Mongo) problem(doc bson.Raw) Malformed {
	id, dates := doc.Lookup("_id"), []bson.Type{0, bson.TypeDateTime, bson.TypeNull}
	if field := ListIn(doc, m.Key); field != "" {
		return Malformed{id, field, ManyKeys}
	}
	if v := Lookup(doc, m.Due); !slices.Contains(dates, v.Type) {
		return Malformed{id, m.Due,
			fmt.Sprintf("is a %s, and Config.Due needs a date: the row is never due", v.Type)}
	}
	row, text := Parse(doc, m.Field), "is "+Text(doc.Lookup(m.Field))
	for _, p := range parts {
		if v := doc.Lookup(m.Field, p.name); v.Type != p.kind && (v.Type != 0 || p.of == row.Mark.State) {
			text += ", check " + m.at(p.name)
		}
	}
	return Malformed{id, m.Field, text}
}

// Repair makes rows ready that are claimed but have no valid slot or session, and resets their
// attempts. It does not change a malformed fence.
func (m *Mongo) Repair(ctx context.Context) (int, error) {
	return m.changeAll(ctx, change{filter: m.mine(m.is(Claimed), e("$or", m.oddState())),
		update: bson.D{m.unset("state", "locks", "slot", "slotFence", "session", "batch", "cancelled",
			"attempts")}})
}
