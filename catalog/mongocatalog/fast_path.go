package mongocatalog

import (
	"fmt"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// This file is the common case of a lock that one holder has to itself, in a document as we write
// it: one command with a pipeline of few words, since the server reads and weighs a pipeline anew
// with every command. What the conditions here do not match is left to a compare-and-set, see
// compare_and_set.go.
//
// Why there is this form beside that one: of 16 contenders for themselves a turn, which is to enter
// and to leave, takes 2 commands and 2.7 least writes in this form, 8.4 and 3.8 by compare-and-set;
// of 64 it is 2 and 4.2 beside 12 and 5.1. Where nobody contends the compare-and-set takes no
// longer (2.8 beside 3.0, with 2 commands more). Measured on a replica set of three (4.4, an
// unoptimized build) in one run; a least write is a durable update of a number.

// work is the field in which a pipeline keeps what it has worked out. It is gone in the end.
const work = "__q"

// worked is a value worked out by an earlier stage.
func worked(field string) string { return "$" + work + "." + field }

// setting is a stage that keeps values for later ones.
func setting(values bson.D) bson.D {
	set := make(bson.D, 0, len(values))
	for _, e := range values {
		set = append(set, bson.E{Key: work + "." + e.Key, Value: e.Value})
	}
	return call("$set", set)
}

// entryOf is transition.Entry with the server's clock.
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

// grantLine is one line of the field grants, a catalog.GrantLine. process is of one line, see
// catalog.OneLine.
func grantLine(ts, fence, process any) bson.D {
	return call("$concat", ts, " ", call("$toString", fence), " ", process, "\n")
}

// ours are the types of numbers that we write.
var ours = bson.D{{Key: "$type", Value: bson.A{"int", "long"}}}

// ourNumber is the condition that a field is a number of ours within bounds.
func ourNumber(least, most int64) bson.D {
	return append(append(bson.D{}, ours...),
		bson.E{Key: "$gte", Value: least}, bson.E{Key: "$lte", Value: most})
}

// exclusive are the conditions on a document that is held by one at most, and well formed in what
// the short pipelines read. Of waiters every element must be a waiter. Of the others none may hold.
func exclusive(name string, none ...any) bson.D {
	waiters := notParties("waiters",
		bson.D{{Key: "mode", Value: bson.D{{Key: "$nin", Value: bson.A{"", string(catalog.Shared)}}}}},
		isList("mode"))
	return append(wellFormed(name, append(waiters, none...)), noSharers...)
}

// noSharers are the conditions that a document has nothing of a lock that several hold.
var noSharers = bson.D{
	{Key: "mode", Value: absent}, {Key: "limit", Value: absent}, {Key: "sharers", Value: absent},
}

// wellFormed are the conditions on what every document of ours has. Of the others none may hold.
func wellFormed(name string, none bson.A) bson.D {
	filter := bson.D{
		{Key: "_id", Value: name},
		{Key: "process", Value: bson.D{{Key: "$type", Value: "string"}}},
		{Key: "fence", Value: ourNumber(0, transition.Highest)},
		{Key: "rev", Value: ourNumber(0, catalog.MaxCount)},
		{Key: "$nor", Value: none},
	}
	for _, field := range []string{"state", "process", "ts", "fence", "rev"} {
		filter = append(filter, bson.E{Key: field + ".0", Value: absent}) // a condition looks into arrays
	}
	return filter
}

// notParties are the conditions of which none may hold for any element of sharers or waiters: what
// is no document with a session and a process. A condition looks into arrays. They are no
// expression, since a server takes none where the document may have to be made.
func notParties(field string, more ...bson.D) bson.A {
	other := func(field, kind string) bson.D {
		return call(field, call("$not", call("$type", kind)))
	}
	conditions := append([]bson.D{
		{{Key: "$not", Value: bson.D{{Key: "$type", Value: "object"}}}},
		other("ts", "objectId"), isList("ts"), {{Key: "ts", Value: bson.NilObjectID}},
		other("process", "string"), isList("process"), {{Key: "process", Value: ""}},
	}, more...)
	var none bson.A
	for _, c := range conditions {
		none = append(none, bson.D{{Key: field, Value: bson.D{{Key: "$elemMatch", Value: c}}}})
	}
	return none
}

// isList is the condition that a field is an array that is not empty.
func isList(field string) bson.D { return bson.D{{Key: field + ".0", Value: there}} }

// onceInLine is the condition that no session waits twice, and the holder not at all.
func onceInLine() bson.D {
	line := array("$waiters")
	return call("$eq", call("$add", call("$size", line), int32(1)),
		call("$size", call("$setUnion", bson.A{"$ts"}, each(line, "$$p.ts"))))
}

var isArray = bson.D{{Key: "$type", Value: "array"}}

// nobodyWaits and somebodyWaits are conditions on the line.
var (
	nobodyWaits   = bson.D{{Key: "waiters", Value: absent}}
	somebodyWaits = bson.D{
		{Key: "waiters", Value: isArray},
		{Key: "waiters.0", Value: there},
	}
)

// nextIsToldInOneLine is the condition that somebody waits, and that the first has a process id
// which a grantLine may name as it is.
var nextIsToldInOneLine = append(append(bson.D{}, somebodyWaits...),
	bson.E{Key: "waiters.0.process", Value: call("$not", call("$regex", "\n"))})

// stateFree and stateHeld are the conditions on a state that ours wrote.
var (
	stateFree = bson.E{Key: "state", Value: append(append(bson.D{}, ours...),
		bson.E{Key: "$lte", Value: int32(0)}, bson.E{Key: "$gte", Value: int32(0)})}
	stateHeld = bson.E{Key: "state", Value: append(append(bson.D{}, ours...), positive...)}
)

// shortEntry lets r enter a lock that nobody shares: it is made, or free and nobody waits, or held.
func shortEntry(r catalog.Request) modification {
	free := append(bson.D{stateFree}, nobodyWaits...)
	held := func(line bson.D) bson.D { return append(bson.D{stateHeld}, line...) }
	filter := append(exclusive(r.Name, full),
		bson.E{Key: "ts", Value: bson.D{
			{Key: "$type", Value: "objectId"}, {Key: "$nin", Value: bson.A{r.TS, bson.NilObjectID}},
		}},
		bson.E{Key: "waiters.ts", Value: bson.D{{Key: "$ne", Value: r.TS}}},
		bson.E{Key: "$or", Value: bson.A{free, held(nobodyWaits), held(somebodyWaits)}},
	)
	return modification{filter: filter, update: enteringAlone(r), upsert: true}
}

// full is the condition that the queue has no place, see [catalog.Lock.RoomFor].
var full = bson.D{{Key: fmt.Sprintf("waiters.%d", catalog.MaxWaiters-1), Value: there}}

// enteringAlone gives r the lock if nobody holds it, and else a place at the end of the line. It
// changes nothing where a session stands in the line twice.
func enteringAlone(r catalog.Request) bson.A {
	free, fence, fine := worked("free"), worked("fence"), worked("fine")
	take := func(field string, value any) bson.E {
		return bson.E{Key: field, Value: choose(free, value, "$"+field)}
	}
	return bson.A{
		setting(bson.D{
			{Key: "free", Value: not(isHeld())}, {Key: "fence", Value: nextFence()},
			{Key: "fine", Value: onceInLine()},
		}),
		call("$set", bson.D{
			take("evidence", "$$REMOVE"),
			take("fence", fence),
			take("grants", grantLine(literal(r.TS.Hex()), fence, literal(catalog.OneLine(r.Process)))),
			take("process", literal(r.Process)),
			{Key: "rev", Value: choose(fine, nextRev(), "$rev")},
			take("state", int32(1)),
			take("takeoverMS", r.Takeover.Milliseconds()),
			take("ts", r.TS),
			{Key: "waiters", Value: choose(free, "$$REMOVE", choose(fine,
				call("$concatArrays", call("$ifNull", "$waiters", bson.A{}), bson.A{entryOf(r)}), "$waiters"))},
			take("when", "$$NOW"),
			take("who", literal(r.Who)),
			take("why", literal(r.Why)),
		}),
		call("$unset", work),
	}
}

// nextRev is the rev after a change.
func nextRev() bson.D { return call("$add", call("$ifNull", "$rev", int64(0)), int64(1)) }

// shortDeparture lets the one holder go. The first in line, if there is one, wants the lock for
// itself; the evidence is written for it.
func shortDeparture(s catalog.Session, evidence string) modification {
	next := append(append(bson.D{}, nextIsToldInOneLine...), bson.E{Key: "waiters.0.mode", Value: ""})
	return modification{
		filter: append(exclusive(s.Name),
			bson.E{Key: "ts", Value: s.TS},
			bson.E{Key: "waiters.ts", Value: bson.D{{Key: "$ne", Value: s.TS}}}, // by a hand only
			stateHeld,
			bson.E{Key: "$or", Value: bson.A{nobodyWaits, next}},
			bson.E{Key: "$expr", Value: onceInLine()},
		),
		update: leavingAlone(evidence),
		fields: answer(),
	}
}

// shortEviction is the departure of a dead holder that still stands there as it was watched.
func shortEviction(dead catalog.Holder, evidence string) modification {
	m := shortDeparture(dead.Session, evidence)
	for i, e := range m.filter {
		if e.Key == "process" {
			m.filter[i].Value = dead.Process
		}
	}
	m.filter = append(m.filter, watched(dead)...)
	return m
}

// leavingAlone gives the lock to the first in line, or to nobody.
func leavingAlone(evidence string) bson.A {
	told := any("$$REMOVE")
	if evidence != "" {
		told = literal(evidence)
	}
	some, next, fence := worked("some"), worked("next"), worked("fence")
	give := func(field string, value any) bson.E {
		return bson.E{Key: field, Value: choose(some, value, "$"+field)}
	}
	return bson.A{
		setting(bson.D{
			{Key: "some", Value: call("$isArray", bson.A{"$waiters"})},
			{Key: "next", Value: first("$waiters")},
			{Key: "fence", Value: nextFence()},
		}),
		call("$set", bson.D{
			give("evidence", told),
			give("fence", fence),
			give("grants", grantLine(call("$toString", next+".ts"), fence, next+".process")),
			give("process", next+".process"),
			{Key: "rev", Value: call("$add", "$rev", int64(1))},
			{Key: "state", Value: choose(some, int32(1), int32(0))},
			give("takeoverMS", next+".takeoverMS"),
			give("ts", next+".ts"),
			{Key: "waiters", Value: choose(call("$gt", call("$size", array("$waiters")), int32(1)),
				call("$slice", array("$waiters"), int32(1), int32(math.MaxInt32)), "$$REMOVE")},
			give("when", "$$NOW"),
			give("who", next+".who"),
			give("why", next+".why"),
		}),
		call("$unset", work),
	}
}

// nextFence is the fence of the next grant.
func nextFence() bson.D { return call("$toLong", call("$add", int64(1), lastFence())) }
