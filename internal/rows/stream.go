package rows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// ErrNoStream is returned by Watch if the server has no change streams.
var ErrNoStream = errors.New("no change streams here")

// codesNoStream are the error codes of a server that cannot open a change stream. Reasons are a
// standalone server (40573, 20), the database named admin, config or local (73), and a server that
// does not know the stage $changeStream.
var codesNoStream = []int{codeIllegal, codeCommandNotFound, 73, 115, 238, 40324, 40573}

// An Event is a change of one row. Its ID is valid only until the function that receives the event
// returns.
type Event struct {
	Kind EventKind
	ID   bson.RawValue
	Due  time.Time // the due time of a new row, or a changed due time
}

// An EventKind is the kind of a change.
type EventKind string

// The kinds of events. Rows that do not match the filter cause events, too.
const (
	Opened  EventKind = ""        // the stream begins
	Arrived EventKind = "arrived" // the row is new or ready again
	Taken   EventKind = "taken"   // the row was claimed
	Freed   EventKind = "freed"   // the row gave up its key, or was removed
)

// stages returns the aggregation stages that reduce the events of a change stream to Events. The
// field names in updatedFields contain dots. The stages therefore convert this document to an array
// of names and values.
func (m *Mongo) stages() bson.A {
	is := func(a, b any) bson.D { return d("$eq", bson.A{a, b}) }
	among := func(one, of any) bson.D { return d("$in", bson.A{one, of}) }
	or := func(all ...any) bson.D { return d("$or", bson.A(all)) }
	then := func(condition bson.D, kind EventKind) bson.D {
		return bson.D{e("case", condition), e("then", kind)}
	}
	readyIn := func(mark string) bson.D {
		return is(d("$ifNull", bson.A{mark + ".state", Ready}), Ready)
	}
	whole, set := "$fullDocument."+m.Field, "$updateDescription.updatedFields."+m.Field
	gone, list := d("$ifNull", bson.A{"$updateDescription.removedFields", bson.A{}}), "$set"
	kinds := []string{"insert", "replace", "update"}
	if m.Key != "" || m.Due != "" {
		kinds = append(kinds, "delete")
	}
	var due any                           // the due time of the row, if the event has it
	var added any = true                  // a new row has a due time
	var moved, dropped any = false, false // an update changed the due time; the row became dead
	if m.Due != "" {
		named := d("$filter", bson.D{e("input", list), e("as", "one"), e("cond", is("$$one.k", m.Due))})
		whole := d("$ifNull", bson.A{"$fullDocument." + m.Due,
			"$updateDescription.updatedFields." + m.Due})
		due = d("$let", bson.D{
			e("vars", d("named", d("$arrayElemAt", bson.A{named, 0}))),
			e("in", d("$ifNull", bson.A{"$$named.v", whole})),
		})
		added = is(d("$type", "$due"), "date")
		moved = d("$and", bson.A{added, is("$operationType", "update")})
		dropped = among(bson.D{e("k", m.at("state")), e("v", Dead)}, list)
	}
	return bson.A{
		d("$match", append(d("operationType", in(kinds)), m.own()...)),
		d("$addFields", bson.D{
			e("set", d("$ifNull", bson.A{
				d("$objectToArray", "$updateDescription.updatedFields"), bson.A{}})),
		}),
		d("$addFields", d("due", due)),
		d("$project", bson.D{e("id", "$documentKey._id"), e("due", 1), e("kind", d("$switch", bson.D{
			e("branches", bson.A{
				then(is("$operationType", "delete"), Freed),
				then(d("$and", bson.A{d("$ne", bson.A{"$operationType", "update"}),
					readyIn(whole), added}), Arrived),
				then(or(among(m.at("batch"), list+".k"), is(whole+".state", Claimed),
					is(set+".state", Claimed)), Taken),
				then(or(moved, among(m.at("state"), gone), among(m.Field, gone),
					among(bson.D{e("k", m.at("state")), e("v", Ready)}, list),
					d("$and", bson.A{among(m.Field, list+".k"), readyIn(set)})), Arrived),
				then(or(dropped, among(m.at("holds"), gone)), Freed),
			}), e("default", nil),
		}))}),
		d("$match", d("kind", d("$ne", nil))),
	}
}

func (m *Mongo) Watch(ctx context.Context, report func(Event)) error {
	ctx = Alone(ctx)
	switch server, err := m.server.Hello(ctx); {
	case err != nil:
		return err
	case server.Kind == catalog.Mongos: // a mongos waits for idle shards
		return fmt.Errorf("%w: the server is a mongos", ErrNoStream)
	}
	stream, err := m.rows.Watch(ctx, m.stages())
	if has(err, codesNoStream...) {
		return fmt.Errorf("%w: %w", ErrNoStream, err)
	}
	if err != nil {
		return m.failed("changeStream, find", err)
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }() // the server closes it anyway
	report(Event{Kind: Opened})
	for stream.Next(ctx) {
		kind, _ := stream.Current.Lookup("kind").StringValueOK()
		due, _ := stream.Current.Lookup("due").TimeOK()
		report(Event{EventKind(kind), stream.Current.Lookup("id"), due.UTC()})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return m.failed("changeStream, find", stream.Err())
}

// own returns a condition that excludes inserts and replacements of rows outside the queue. It uses
// only the equality conditions of the filter, without the collation of the collection.
func (m *Mongo) own() bson.D {
	var whole bson.D
	for _, one := range m.Filter {
		switch one.Value.(type) {
		case string, bool, int, int32, int64, bson.ObjectID:
			whole = append(whole, e("fullDocument."+one.Key, one.Value))
		}
	}
	if whole == nil {
		return nil
	}
	return d("$or", bson.A{d("operationType", d("$nin", bson.A{"insert", "replace"})), whole})
}
