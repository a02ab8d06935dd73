package mongocatalog

import (
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// This file has the commands for the common case of an exclusive lock. Each command applies a
// transition without a read, to a document that this package wrote. The pipelines are short,
// because the server parses and optimizes them for every command. All other documents are changed
// by compare-and-set, see compare_and_set.go.
//
// These are the costs of one Enter and its Leave, in commands and in minimal writes. One minimal
// write is the time for a durable update of a number. The costs were measured in one run on a
// replica set of three (4.4, an unoptimized build):
//   - 16 contenders: 2 commands and 2.7 minimal writes; by compare-and-set 8.4 commands and
//     3.8 minimal writes;
//   - 64 contenders: 2 commands and 4.2 minimal writes; by compare-and-set 12 commands and
//     5.1 minimal writes;
//   - one contender: 2 commands and 3.0 minimal writes; by compare-and-set 4 commands and
//     2.8 minimal writes.

// work is the field in which a pipeline stores intermediate values. The last stage of the pipeline
// removes the field.
const work = "__q"

// worked returns the expression for an intermediate value of an earlier stage.
func worked(field string) string { return "$" + work + "." + field }

// setting returns a stage that stores the given values in the field work.
func setting(values bson.D) bson.D {
	set := make(bson.D, 0, len(values))
	for _, e := range values {
		set = append(set, bson.E{Key: work + "." + e.Key, Value: e.Value})
	}
	return call("$set", set)
}

// when returns a conditional assignment. If the condition is true, the field is set to the value.
// Otherwise the field stays unchanged.
func when(condition any, field string, value any) bson.E {
	return bson.E{Key: field, Value: choose(condition, value, "$"+field)}
}

// entryOf returns the queue entry of a request as an aggregation expression. Its field since is the
// server's clock.
func entryOf(r catalog.Request) bson.D {
	entry := transition.Entry(r, time.Time{})
	for i, e := range entry {
		entry[i].Value = any(literal(e.Value))
		if e.Key == "since" {
			entry[i].Value = "$$NOW"
		}
	}
	return entry
}

// grantLine returns [catalog.GrantLine] as an expression. The process id must not contain a line
// break, see [catalog.OneLine].
func grantLine(ts, fence, process any) bson.D {
	return call("$concat", ts, " ", call("$toString", fence), " ", process, "\n")
}

// ours is the condition that a number is an int or a long. This package writes no other types of
// numbers.
var ours = bson.D{{Key: "$type", Value: bson.A{"int", "long"}}}

// ourNumber is the condition that a field is an int or long within the two limits.
func ourNumber(least, most int64) bson.D {
	return append(append(bson.D{}, ours...),
		bson.E{Key: "$gte", Value: least}, bson.E{Key: "$lte", Value: most})
}

// exclusive returns the conditions for a command on an exclusive lock. The fields that the command
// uses must be valid. The lock must have at most one holder. Every waiter must be valid and must
// not wait for a permit. The result also excludes a document that meets one of the given
// conditions.
func exclusive(name string, none ...any) bson.D {
	waiters := notParticipants("waiters",
		call("mode", call("$nin", bson.A{"", string(catalog.Shared)})), isList("mode"))
	return append(wellFormed(name, append(waiters, none...)), noSharers...)
}

var noSharers = bson.D{
	{Key: "mode", Value: absent}, {Key: "limit", Value: absent}, {Key: "sharers", Value: absent},
}

// wellFormed returns conditions that every document of this package meets. They also exclude a
// document that meets one of the given conditions.
func wellFormed(name string, none bson.A) bson.D {
	filter := bson.D{
		{Key: "_id", Value: name},
		{Key: "process", Value: bson.D{{Key: "$type", Value: "string"}}},
		{Key: "fence", Value: ourNumber(0, transition.Highest)},
		{Key: "rev", Value: ourNumber(0, catalog.MaxCount)},
		{Key: "$nor", Value: none},
	}
	for _, field := range []string{"state", "process", "ts", "fence", "rev"} {
		filter = append(filter, bson.E{Key: field + ".0", Value: absent}) // not an array
	}
	return filter
}

// notParticipants returns conditions that match an invalid element of sharers or waiters. A valid
// element is a document with a session and a process. A condition on a field also matches an array
// that contains a matching element, so isList excludes arrays. Expressions are not used, because a
// server rejects $expr in an upsert.
func notParticipants(field string, more ...bson.D) bson.A {
	other := func(field, kind string) bson.D {
		return call(field, call("$not", call("$type", kind)))
	}
	conditions := append([]bson.D{
		call("$not", call("$type", "object")),
		other("ts", "objectId"), isList("ts"), {{Key: "ts", Value: bson.NilObjectID}},
		other("process", "string"), isList("process"), {{Key: "process", Value: ""}},
	}, more...)
	var none bson.A
	for _, c := range conditions {
		none = append(none, call(field, call("$elemMatch", c)))
	}
	return none
}

// isList is the condition that a field is a non-empty array.
func isList(field string) bson.D { return bson.D{{Key: field + ".0", Value: there}} }

// sessionsDiffer is the condition that no session is queued twice, and that the holder is not
// queued.
func sessionsDiffer() bson.D {
	waiters := array("$waiters")
	return call("$eq", call("$add", call("$size", waiters), int32(1)),
		call("$size", call("$setUnion", bson.A{"$ts"}, each(waiters, "$$p.ts"))))
}

var isArray = bson.D{{Key: "$type", Value: "array"}}

var (
	noWaiters  = bson.D{{Key: "waiters", Value: absent}}
	hasWaiters = bson.D{{Key: "waiters", Value: isArray}, {Key: "waiters.0", Value: there}}
)

// nextIsOneLine is the condition that there is a waiter, and that the first waiter's process id has
// no line break. grantLine cannot replace line breaks.
var nextIsOneLine = append(append(bson.D{}, hasWaiters...),
	bson.E{Key: "waiters.0.process", Value: call("$not", call("$regex", "\n"))})

// stateFree and stateHeld are the conditions that a lock is free, and that it is held. The state
// must have a type that this package writes.
var (
	stateFree = bson.E{Key: "state", Value: append(append(bson.D{}, ours...),
		bson.E{Key: "$lte", Value: int32(0)}, bson.E{Key: "$gte", Value: int32(0)})}
	stateHeld = bson.E{Key: "state", Value: append(append(bson.D{}, ours...), positive...)}
)

// shortEntry returns the command that acquires the lock for r, or queues r. It matches a document
// whose lock is free without waiters, is held exclusively, or is held by readers. If the document
// is missing, the command inserts it.
//
// A compare-and-set fails if another process writes between its read and its write. With a round
// trip of 20 ms and 8 readers that acquire and release the lock all the time, it queued no writer
// for two minutes (in virtual time).
func shortEntry(r catalog.Request) modification {
	both := func(a, b bson.D) bson.D { return append(append(bson.D{}, a...), b...) }
	alone := both(bson.D{stateHeld}, noSharers)
	readers := append(shared(catalog.Shared, nil), bson.E{Key: "sharers.ts", Value: call("$ne", r.TS)})
	exclusiveNext := append(both(nil, hasWaiters), bson.E{Key: "waiters.0.mode", Value: ""})
	filter := append(append(sharing(r.Name, catalog.Shared, full), newcomer(r.TS)...),
		bson.E{Key: "$or", Value: bson.A{
			both(append(bson.D{stateFree}, noSharers...), noWaiters),
			both(alone, noWaiters), both(alone, hasWaiters),
			both(readers, noWaiters), both(readers, exclusiveNext),
		}})
	return modification{filter: filter, update: enteringAlone(r), upsert: true}
}

// newcomer returns the conditions that a session is neither the holder in the top-level fields nor
// a waiter.
func newcomer(ts bson.ObjectID) bson.D {
	return bson.D{
		{Key: "ts", Value: bson.D{
			{Key: "$type", Value: "objectId"}, {Key: "$nin", Value: bson.A{ts, bson.NilObjectID}},
		}},
		{Key: "waiters.ts", Value: call("$ne", ts)},
	}
}

// full is the condition that the queue is full, see [catalog.Lock.RoomFor].
var full = bson.D{{Key: fmt.Sprintf("waiters.%d", catalog.MaxWaiters-1), Value: there}}

// enteringAlone returns the update that makes r the holder of a free lock, or adds r to the queue
// of a held lock. If a session occurs twice, or the first sharer is not the holder in the top-level
// fields, the queue stays unchanged.
func enteringAlone(r catalog.Request) bson.A {
	free, fence, fine := worked("free"), worked("fence"), worked("fine")
	return bson.A{
		setting(bson.D{
			{Key: "free", Value: not(isHeld())}, {Key: "fence", Value: nextFence()},
			{Key: "fine", Value: choose(call("$isArray", bson.A{"$sharers"}), sharersConsistent(),
				sessionsDiffer())},
		}),
		call("$set", bson.D{
			when(free, "evidence", "$$REMOVE"),
			when(free, "fence", fence),
			when(free, "grants", grantLine(literal(r.TS.Hex()), fence, literal(catalog.OneLine(r.Process)))),
			when(free, "process", literal(r.Process)),
			{Key: "rev", Value: choose(fine, nextRev(), "$rev")},
			when(free, "state", int32(1)),
			when(free, "takeoverMS", r.Takeover.Milliseconds()),
			when(free, "ts", r.TS),
			{Key: "waiters", Value: choose(free, "$$REMOVE", choose(fine,
				call("$concatArrays", call("$ifNull", "$waiters", bson.A{}), bson.A{entryOf(r)}), "$waiters"))},
			when(free, "when", "$$NOW"),
			when(free, "who", literal(r.Who)),
			when(free, "why", literal(r.Why)),
		}),
		call("$unset", work),
	}
}

func nextRev() bson.D { return call("$add", call("$ifNull", "$rev", int64(0)), int64(1)) }

// shortDeparture returns the command that releases an exclusive lock. If there are waiters, the
// command grants the lock to the first waiter, and stores the evidence with the grant. If the first
// waiter requests a shared lock, the command does not match.
func shortDeparture(t transition.Leave, evidence string) modification {
	s, fields := t.Session, answer()
	unqueued := bson.A{s.TS} // a manual edit may have queued the holder
	if t.Enqueue != nil {
		fields = append(fields, only("who", "why", "takeoverMS", "leases", "yield", "waiters")...)
		unqueued = append(unqueued, t.Enqueue.TS)
	}
	next := append(append(bson.D{}, nextIsOneLine...), bson.E{Key: "waiters.0.mode", Value: ""})
	return modification{
		filter: append(exclusive(s.Name),
			bson.E{Key: "ts", Value: s.TS},
			bson.E{Key: "waiters.ts", Value: bson.D{{Key: "$nin", Value: unqueued}}},
			stateHeld,
			bson.E{Key: "$or", Value: bson.A{noWaiters, next}},
			bson.E{Key: "$expr", Value: sessionsDiffer()},
		),
		update: leavingAlone(evidence, t.Enqueue),
		fields: fields,
	}
}

// shortEviction is shortDeparture for the eviction of a holder. The document must still contain the
// holder's process and the watched lease renewal.
func shortEviction(dead catalog.Holder, evidence string) modification {
	m := shortDeparture(transition.Leave{Session: dead.Session}, evidence)
	for i, e := range m.filter {
		if e.Key == "process" {
			m.filter[i].Value = dead.Process
		}
	}
	m.filter = append(m.filter, watched(dead)...)
	return m
}

// leavingAlone returns the update that grants the lock to the first waiter, or frees the lock. If
// the lock is granted and the queue is not too long, the update also queues the request enqueue.
func leavingAlone(evidence string, enqueue *catalog.Request) bson.A {
	value := any("$$REMOVE")
	if evidence != "" {
		value = literal(evidence)
	}
	some, next, fence := worked("some"), worked("next"), worked("fence")
	waiters := withoutFirst()
	if enqueue != nil {
		room := call("$lte", call("$size", array("$waiters")), int32(transition.MaxEnqueued))
		longer := call("$concatArrays",
			call("$slice", array("$waiters"), int32(1), int32(math.MaxInt32)), bson.A{entryOf(*enqueue)})
		waiters = choose(every(some, room), longer, waiters)
	}
	return bson.A{
		setting(bson.D{
			{Key: "some", Value: call("$isArray", bson.A{"$waiters"})},
			{Key: "next", Value: first("$waiters")},
			{Key: "fence", Value: nextFence()},
		}),
		call("$set", bson.D{
			when(some, "evidence", value),
			when(some, "fence", fence),
			when(some, "grants", grantLine(call("$toString", next+".ts"), fence, next+".process")),
			when(some, "process", next+".process"),
			{Key: "rev", Value: call("$add", "$rev", int64(1))},
			{Key: "state", Value: choose(some, int32(1), int32(0))},
			when(some, "takeoverMS", next+".takeoverMS"),
			when(some, "ts", next+".ts"),
			{Key: "waiters", Value: waiters},
			when(some, "when", "$$NOW"),
			when(some, "who", next+".who"),
			when(some, "why", next+".why"),
		}),
		call("$unset", work),
	}
}

func withoutFirst() any {
	return choose(
		call("$gt", call("$size", array("$waiters")), int32(1)),
		call("$slice", array("$waiters"), int32(1), int32(math.MaxInt32)), "$$REMOVE")
}

func nextFence() bson.D { return call("$toLong", call("$add", int64(1), lastFence())) }

// watched returns the condition that the lease of an exclusive holder still has the number
// h.Renewal. If that number is zero, watched returns nil. The document must contain no other lease,
// because a renewal by an exclusive holder removes all other leases.
func watched(h catalog.Holder) bson.D {
	if h.Renewal == 0 {
		return nil
	}
	return bson.D{
		{Key: "leases.0.ts", Value: h.TS}, {Key: "leases.0.n", Value: h.Renewal},
		{Key: "leases.1", Value: absent},
	}
}

// renewing returns the command of [transition.Renew], with the server's clock.
func renewing(r catalog.Renewal) modification {
	local := bson.NewDateTimeFromTime(r.Local)
	newer := func(like ...bson.E) bson.D { // the session has a lease with these fields
		return call("leases", call("$elemMatch", append(bson.D{{Key: "ts", Value: r.TS}}, like...)))
	}
	filter := append(holdsWith(r.Session), bson.E{Key: "$nor", Value: bson.A{
		newer(bson.E{Key: "n", Value: bson.D{{Key: "$gt", Value: r.Number}}}),
		newer(bson.E{Key: "n", Value: r.Number},
			bson.E{Key: "local", Value: bson.D{{Key: "$ne", Value: local}}}),
	}})
	others := where(array("$leases"), every(
		call("$in", "$$p.ts", holding("$$p.ts", "$ts")), call("$ne", "$$p.ts", r.TS)))
	return modification{filter: filter, fields: bson.D{{Key: "_id", Value: int32(1)}}, update: bson.A{
		call("$set", bson.D{
			{Key: "leases", Value: call("$concatArrays", others, bson.A{bson.D{
				{Key: "ts", Value: r.TS}, {Key: "ms", Value: transition.LeaseMS(r.Life)},
				{Key: "n", Value: r.Number}, {Key: "at", Value: "$$NOW"}, {Key: "local", Value: local},
			}})},
			{Key: "rev", Value: nextRev()},
		}),
	}}
}
