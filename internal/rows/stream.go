package rows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ErrNoStream is returned by Watch where there are no change streams.
var ErrNoStream = errors.New("no change streams here")

// codesNoStream are those with which servers refuse a change stream: a standalone (40573, 20), a
// database of the server's own (73), and those that do not know the stage.
var codesNoStream = []int{codeIllegal, codeCommandNotFound, 73, 115, 238, 40324, 40573}

// An Event is what a change stream tells of one row: its _id, which is valid during the call only.
type Event struct {
	Kind EventKind
	ID   bson.RawValue
	Due  time.Time // of a row that is due at a time and was added, or whose time was changed
}

// An EventKind is what has happened.
type EventKind string

// The kinds. A row that does not match the queue's filter is told as well.
const (
	Opened  EventKind = ""        // the stream begins: what was before is not told
	Arrived EventKind = "arrived" // the row was added, or is ready again
	Taken   EventKind = "taken"   // the row was claimed
	Freed   EventKind = "freed"   // the row let its key go, or is gone: another one may have it
)

// told are the stages that leave of a change stream what an Event holds. The keys of updatedFields
// hold dots, so they are looked at as values.
func (m *Mongo) told() bson.A {
	is := func(a, b any) bson.D { return d("$eq", bson.A{a, b}) }
	among := func(one, of any) bson.D { return d("$in", bson.A{one, of}) }
	or := func(all ...any) bson.D { return d("$or", bson.A(all)) }
	then := func(condition bson.D, kind EventKind) bson.D {
		return bson.D{e("case", condition), e("then", kind)}
	}
	readyIn := func(mark string) bson.D {
		return is(d("$ifNull", bson.A{mark + ".state", Ready}), Ready)
	}
	whole, set := "$fullDocument."+m.field, "$updateDescription.updatedFields."+m.field
	gone, list := d("$ifNull", bson.A{"$updateDescription.removedFields", bson.A{}}), "$set"
	due, added, moved := m.dueTold(list)
	kinds := []string{"insert", "replace", "update"}
	if m.chain.key != "" || m.due != "" {
		kinds = append(kinds, "delete")
	}
	var dropped any = false // maybe before its time, of which others know
	if m.due != "" {
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
				then(or(moved, among(m.at("state"), gone), among(m.field, gone),
					among(bson.D{e("k", m.at("state")), e("v", Ready)}, list),
					d("$and", bson.A{among(m.field, list+".k"), readyIn(set)})), Arrived),
				then(or(dropped, among(m.at("holds"), gone)), Freed),
			}), e("default", nil),
		}))}),
		d("$match", d("kind", d("$ne", nil))),
	}
}

// Watch is documented in [Store].
func (m *Mongo) Watch(ctx context.Context, tell func(Event)) error {
	ctx = alone(ctx)
	stream, err := m.rows.Watch(ctx, m.told())
	if has(err, codesNoStream...) {
		return fmt.Errorf("%w: %w", ErrNoStream, err)
	}
	if err != nil {
		return m.failed("changeStream, find", err)
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }() // the server closes it by itself
	tell(Event{Kind: Opened})
	for stream.Next(ctx) {
		kind, _ := stream.Current.Lookup("kind").StringValueOK()
		due, _ := stream.Current.Lookup("due").TimeOK()
		tell(Event{EventKind(kind), stream.Current.Lookup("id"), due.UTC()})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return m.failed("changeStream, find", stream.Err())
}
