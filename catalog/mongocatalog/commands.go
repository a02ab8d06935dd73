package mongocatalog

import (
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// The commands in this file contain the strings of callers only as values. So a "$" or a "." in a
// name or a process id has no special meaning.

var (
	absent = bson.D{{Key: "$exists", Value: false}}
	there  = bson.D{{Key: "$exists", Value: true}}
)

// positive is the condition that a lock is held. A missing or null state does not meet this
// condition.
var positive = bson.D{{Key: "$gt", Value: int32(0)}}

// majority is the write concern of every write. On a replica set, w: majority also waits for the
// journal. On a standalone it does not, so j is set. Without j, a killed standalone loses the
// acknowledged writes of the last 100 ms.
var majority = bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}

// revised is the part of an update that raises rev by 1. Every write of this package to a lock
// document raises rev.
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

func held(s catalog.Session) bson.D {
	return bson.D{
		{Key: "_id", Value: s.Name}, {Key: "ts", Value: s.TS}, {Key: "state", Value: positive},
	}
}

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

// unwaited requires an empty queue. unshared requires an empty list of sharers. alone requires a
// mode other than shared and permit.
var (
	unwaited = bson.E{Key: "waiters.0", Value: absent}
	unshared = bson.E{Key: "sharers.0", Value: absent}
	alone    = bson.E{Key: "mode", Value: bson.D{{Key: "$nin", Value: shareable}}}
)

// none is the condition that a list is absent, null or empty.
var none = bson.D{{Key: "$in", Value: bson.A{nil, bson.A{}}}}

// acquisition acquires a free lock without waiters. The filter matches only documents that
// [catalog.ParseLock] accepts. It uses no expressions, because some servers do not support them.
// The conditions on the type of state and on state.0 are necessary: {state: 0} alone also matches
// the Decimal128 0 and an array that contains 0.
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
		call(field+".0", there),
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
	filter := append(held(s), bson.E{Key: "ts.0", Value: absent}, unwaited,
		bson.E{Key: "sharers", Value: none}, unshared, alone, countable)
	free := bson.D{{Key: "$set", Value: call("state", int32(0))}, {Key: "$inc", Value: revised}}
	return updateOne(catalog.LocksCollection, filter, free, false)
}

// pinging returns the command of a ping. Its filter does not match a condemned document, a document
// with the same or a larger number, or a document that another process with the same id wrote. In
// these cases the upsert fails with DuplicateKey. The conditions on seq.0 and local.0 exclude
// arrays, because {seq: {$lt: n}} alone also matches an array that contains a smaller number.
func pinging(b catalog.Heartbeat) modification {
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

// changingPing returns the command for a change of a ping document. If now is zero, the server sets
// all dates. Otherwise dates in subdocuments are set to now, because FerretDB v1 rejects a path
// with a dot in $currentDate.
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

// updating returns an update that sets and removes fields, and sets each field in dates to the
// server's clock.
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
