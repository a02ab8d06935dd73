package mongocatalog

import (
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file builds commands. Names, process ids and other strings occur only as values, so a "$" or
// a "." in them is data.

// The conditions that a field is absent, and that it is present.
var (
	absent = bson.D{{Key: "$exists", Value: false}}
	there  = bson.D{{Key: "$exists", Value: true}}
)

// positive is the condition on the state of a held lock. It does not match null or a missing field.
var positive = bson.D{{Key: "$gt", Value: int32(0)}}

// majority is the write concern of every write. On a replica set w: majority implies j by default.
// On a standalone it does not, and without j a killed server loses up to 100 ms of acknowledged
// writes.
var majority = bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}

// revised is the increment that every write of this package makes in a lock document.
var revised = bson.D{{Key: "rev", Value: int64(1)}}

type modification struct {
	filter bson.D
	update any // bson.D, or bson.A for a pipeline
	upsert bool
	fields bson.D // projection of the returned document; nil for the whole document
}

func (m modification) command(collection string) bson.D {
	d := bson.D{
		{Key: "findAndModify", Value: collection}, {Key: "query", Value: m.filter},
		{Key: "update", Value: m.update}, {Key: "new", Value: true},
	}
	if m.upsert {
		d = append(d, bson.E{Key: "upsert", Value: true})
	}
	if m.fields != nil {
		d = append(d, bson.E{Key: "fields", Value: m.fields})
	}
	return append(d, bson.E{Key: "writeConcern", Value: majority})
}

// updateOne returns an update of at most one document. With upsert it inserts a missing document.
func updateOne(collection string, filter bson.D, update any, upsert bool) bson.D {
	statement := bson.D{{Key: "q", Value: filter}, {Key: "u", Value: update}}
	if upsert {
		statement = append(statement, bson.E{Key: "upsert", Value: true})
	}
	return bson.D{
		{Key: "update", Value: collection}, {Key: "updates", Value: bson.A{statement}},
		{Key: "ordered", Value: true}, {Key: "writeConcern", Value: majority},
	}
}

// removing returns a statement that deletes one matching document (limit 1), or all (limit 0).
func removing(filter bson.D, limit int32) bson.D {
	return bson.D{{Key: "q", Value: filter}, {Key: "limit", Value: limit}}
}

func deletion(collection string, statements ...any) bson.D {
	return bson.D{
		{Key: "delete", Value: collection}, {Key: "deletes", Value: bson.A(statements)},
		{Key: "ordered", Value: true}, {Key: "writeConcern", Value: majority},
	}
}

// held is the filter for the lock that s holds. It matches the held states of all managers.
func held(s catalog.Session) bson.D {
	return bson.D{
		{Key: "_id", Value: s.Name}, {Key: "ts", Value: s.TS}, {Key: "state", Value: positive},
	}
}

// granted returns the update that makes r the holder.
func granted(r catalog.Request) bson.D {
	return bson.D{
		{Key: "$set", Value: bson.D{
			{Key: "state", Value: int32(1)}, {Key: "process", Value: r.Process},
			{Key: "who", Value: r.Who}, {Key: "why", Value: r.Why}, {Key: "ts", Value: r.TS},
			{Key: "takeoverMS", Value: r.Takeover.Milliseconds()},
		}},
		{Key: "$currentDate", Value: bson.D{{Key: "when", Value: true}}},
		{Key: "$inc", Value: append(bson.D{{Key: "fence", Value: int64(1)}}, revised...)},
	}
}

// The conditions that a document has no waiters, that it has no sharers, and that its mode is not
// one of sharers.
var (
	unwaited = bson.E{Key: "waiters.0", Value: absent}
	unshared = bson.E{Key: "sharers.0", Value: absent}
	alone    = bson.E{Key: "mode", Value: bson.D{{Key: "$nin", Value: shareable}}}
)

// none is the condition that a list is absent or empty.
var none = bson.D{{Key: "$in", Value: bson.A{nil, bson.A{}}}}

// acquisition takes a free lock without waiters. The filter has the conditions of
// [catalog.ParseLock] in a form that every server supports. The condition {state: 0} alone would
// match the Decimal128 0 and an array that contains a 0.
func acquisition(r catalog.Request) modification {
	return modification{
		filter: bson.D{
			{Key: "_id", Value: r.Name},
			{Key: "state", Value: bson.D{
				{Key: "$type", Value: bson.A{"int", "long", "double"}},
				{Key: "$gte", Value: int32(0)}, {Key: "$lte", Value: int32(0)},
			}},
			{Key: "state.0", Value: absent},
			{Key: "waiters", Value: none}, unwaited,
			{Key: "sharers", Value: none}, unshared, alone,
			{Key: "$nor", Value: append(uncountable("fence"), uncountable("rev")...)},
		},
		update: granted(r),
		upsert: true,
	}
}

// uncountable returns the conditions that match an invalid fence or rev of a free lock.
func uncountable(field string) bson.A {
	return bson.A{
		call(field, bson.D{{Key: "$exists", Value: true}, {Key: "$not", Value: ours}}),
		call(field, call("$lt", int32(0))), call(field, call("$gt", int64(catalog.MaxCount))),
		isList(field),
	}
}

func seeding(s catalog.Session, atLeast int64) modification {
	return modification{filter: append(held(s), whole()), update: bson.D{
		{Key: "$max", Value: bson.D{{Key: "fence", Value: atLeast}}},
		{Key: "$inc", Value: revised},
	}}
}

// plainRelease releases a lock with one holder and without waiters. The holder's fields and the
// fence stay in the document.
func plainRelease(s catalog.Session) bson.D {
	countable := bson.E{Key: "$nor", Value: uncountable("rev")}
	filter := append(held(s), unwaited, unshared, alone, countable)
	free := bson.D{{Key: "$set", Value: call("state", int32(0))}, {Key: "$inc", Value: revised}}
	return updateOne(catalog.LocksCollection, filter, free, false)
}

// beating returns a ping. The filter does not match a condemned document, a document with the same
// or a larger number, or the ping of another process with the same id. Then the upsert fails with
// DuplicateKey. The conditions on seq.0 and local.0 exclude arrays: {seq: {$lt: n}} alone would
// match an array that contains a smaller number.
func beating(b catalog.Heartbeat) modification {
	filter := append(alive(b.Process),
		bson.E{Key: "seq", Value: bson.D{{Key: "$lt", Value: b.Seq}}},
		bson.E{Key: "seq.0", Value: absent})
	if len(b.Mine) > 0 {
		mine := make(bson.A, len(b.Mine))
		for i, local := range b.Mine {
			mine[i] = bson.NewDateTimeFromTime(local)
		}
		filter = append(filter,
			bson.E{Key: "local", Value: bson.D{{Key: "$in", Value: mine}}},
			bson.E{Key: "local.0", Value: absent})
	}
	return modification{
		filter: filter,
		update: bson.D{
			{Key: "$currentDate", Value: bson.D{{Key: "ping", Value: true}}},
			{Key: "$set", Value: bson.D{
				{Key: "local", Value: bson.NewDateTimeFromTime(b.Local)},
				{Key: "takeoverMS", Value: b.Takeover.Milliseconds()},
				{Key: "pingMS", Value: b.Interval.Milliseconds()}, {Key: "seq", Value: b.Seq},
			}},
			{Key: "$unset", Value: bson.D{{Key: "sight", Value: ""}}},
		},
		upsert: true,
	}
}

func alive(process string) bson.D {
	return bson.D{{Key: "_id", Value: process}, {Key: "condemned", Value: absent}}
}

// changingPing returns a change of a ping document. If now is zero, the server sets all dates.
// FerretDB v1 rejects dotted paths in $currentDate, so now is written for these paths.
func changingPing(process string, u catalog.PingUpdate, now time.Time) bson.D {
	filter := alive(process)
	if u.Removes {
		return deletion(catalog.PingsCollection, removing(filter, 1))
	}
	filter = append(filter, u.Equal...)
	for _, field := range u.Absent {
		filter = append(filter, bson.E{Key: field, Value: absent})
	}
	set, dates := u.Set, bson.D{}
	for _, field := range u.Dates {
		if !now.IsZero() && strings.Contains(field, ".") {
			set = append(set, bson.E{Key: field, Value: bson.NewDateTimeFromTime(now)})
		} else {
			dates = append(dates, bson.E{Key: field, Value: true})
		}
	}
	return updateOne(catalog.PingsCollection, filter, updating(set, u.Unset, dates), u.Makes)
}

// updating returns an update that sets and removes fields, and sets dates to the server's clock.
func updating(set bson.D, unset []string, dates bson.D) bson.D {
	var update, removed bson.D
	for _, field := range unset {
		removed = append(removed, bson.E{Key: field, Value: ""})
	}
	for _, part := range []bson.E{
		{Key: "$set", Value: set}, {Key: "$unset", Value: removed}, {Key: "$currentDate", Value: dates},
	} {
		if len(part.Value.(bson.D)) > 0 {
			update = append(update, part)
		}
	}
	return update
}

func only(fields ...string) bson.D {
	d := make(bson.D, 0, len(fields))
	for _, field := range fields {
		d = append(d, bson.E{Key: field, Value: int32(1)})
	}
	return d
}

func olderThan(before time.Time) bson.D {
	return call("ping", call("$lt", bson.NewDateTimeFromTime(before)))
}
