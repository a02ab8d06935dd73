package mongocatalog

import (
	"fmt"
	"math"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/queue"
)

// This file is the common case of the queue in few words: a lock that one holder has to himself, in a
// document as we write it. The server reads and weighs a pipeline anew with every command: the general
// one costs several times what this does (measured on 4.4). What the conditions here do not match
// is left to the general one.

// ours are the types of numbers that we write.
var ours = bson.D{{Key: "$type", Value: bson.A{"int", "long"}}}

// ourNumber is the condition that a field is a number of ours within bounds.
func ourNumber(least, most int64) bson.D {
	return append(append(bson.D{}, ours...),
		bson.E{Key: "$gte", Value: least}, bson.E{Key: "$lte", Value: most})
}

// exclusive are the conditions on a document that is held by one at most, and well formed in what the
// short pipelines read. Of waiters every element must be a waiter.
func exclusive(name string) bson.D {
	filter := bson.D{
		{Key: "_id", Value: name},
		{Key: "mode", Value: absent},
		{Key: "limit", Value: absent},
		{Key: "sharers", Value: absent},
		{Key: "process", Value: bson.D{{Key: "$type", Value: "string"}}},
		{Key: "fence", Value: ourNumber(0, queue.Highest)},
		{Key: "rev", Value: ourNumber(0, catalog.MaxCount)},
		{Key: "$nor", Value: notPlain()},
	}
	for _, field := range []string{"state", "process", "ts", "fence", "rev"} {
		filter = append(filter, bson.E{Key: field + ".0", Value: absent}) // a condition looks into arrays
	}
	return filter
}

// notPlain are the conditions of which none may hold for any waiter: what is no document with a session
// and a process, or wants the lock neither for itself nor shared. A condition looks into arrays. They
// are no expression, since a server takes none where the document may have to be made.
func notPlain() bson.A {
	other := func(field, kind string) bson.D {
		return bson.D{{Key: field, Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$type", Value: kind}}}}}}
	}
	list := func(field string) bson.D {
		return bson.D{{Key: field + ".0", Value: bson.D{{Key: "$exists", Value: true}}}}
	}
	conditions := []bson.D{
		{{Key: "$not", Value: bson.D{{Key: "$type", Value: "object"}}}},
		other("ts", "objectId"), list("ts"), {{Key: "ts", Value: bson.NilObjectID}},
		other("process", "string"), list("process"), {{Key: "process", Value: ""}},
		{{Key: "mode", Value: bson.D{{Key: "$nin", Value: bson.A{"", string(catalog.Shared)}}}}}, list("mode"),
	}
	var none bson.A
	for _, c := range conditions {
		none = append(none, bson.D{{Key: "waiters", Value: bson.D{{Key: "$elemMatch", Value: c}}}})
	}
	return none
}

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
		{Key: "waiters.0", Value: bson.D{{Key: "$exists", Value: true}}},
	}
)

// shortEntry lets g enter a lock that nobody shares: it is made, or free and nobody waits, or held.
func shortEntry(g catalog.Grant) modification {
	free := append(bson.D{{Key: "state", Value: append(append(bson.D{}, ours...),
		bson.E{Key: "$lte", Value: int32(0)}, bson.E{Key: "$gte", Value: int32(0)})}}, nobodyWaits...)
	held := func(line bson.D) bson.D {
		return append(bson.D{{Key: "state", Value: append(append(bson.D{}, ours...), positive...)}}, line...)
	}
	filter := append(exclusive(g.Name),
		bson.E{Key: "ts", Value: bson.D{
			{Key: "$type", Value: "objectId"}, {Key: "$nin", Value: bson.A{g.TS, bson.NilObjectID}},
		}},
		bson.E{Key: "waiters.ts", Value: bson.D{{Key: "$ne", Value: g.TS}}},
		bson.E{Key: fullLine, Value: absent},
		bson.E{Key: "$or", Value: bson.A{free, held(nobodyWaits), held(somebodyWaits)}},
	)
	return modification{filter: filter, update: enteringAlone(g), upsert: true}
}

// fullLine is the element of waiters that is there when nobody else may enter.
var fullLine = fmt.Sprintf("waiters.%d", catalog.MaxWaiters-1)

// enteringAlone gives g the lock if nobody holds it, and else a place at the end of the line. It changes
// nothing where a session stands in the line twice.
func enteringAlone(g catalog.Grant) bson.A {
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
			take("grants", grantLine(literal(g.TS.Hex()), fence, literal(g.Process))),
			take("process", literal(g.Process)),
			{Key: "rev", Value: choose(fine, call("$add", call("$ifNull", "$rev", int64(0)), int64(1)), "$rev")},
			take("state", int32(1)),
			take("takeoverMS", g.Takeover.Milliseconds()),
			take("ts", g.TS),
			{Key: "waiters", Value: choose(free, "$$REMOVE", choose(fine,
				call("$concatArrays", call("$ifNull", "$waiters", bson.A{}), bson.A{entryOf(g)}), "$waiters"))},
			take("when", "$$NOW"),
			take("who", literal(g.Who)),
			take("why", literal(g.Why)),
		}),
		call("$unset", work),
	}
}

// shortDeparture lets the one holder go. The first in line, if there is one, wants the lock for
// himself.
func shortDeparture(s catalog.Session) modification {
	next := append(append(bson.D{}, somebodyWaits...), bson.E{Key: "waiters.0.mode", Value: ""})
	return modification{
		filter: append(exclusive(s.Name),
			bson.E{Key: "ts", Value: s.TS},
			bson.E{Key: "waiters.ts", Value: bson.D{{Key: "$ne", Value: s.TS}}}, // by a hand only
			bson.E{Key: "state", Value: append(append(bson.D{}, ours...), positive...)},
			bson.E{Key: "$or", Value: bson.A{nobodyWaits, next}},
			bson.E{Key: "$expr", Value: onceInLine()},
		),
		update: leavingAlone(),
		fields: answer(),
	}
}

// leavingAlone gives the lock to the first in line, or to nobody.
func leavingAlone() bson.A {
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
			give("evidence", "$$REMOVE"),
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

// A sharedNames remembers which locks are used by several at a time, so that their releases do not try
// the short way first.
type sharedNames struct {
	mu    sync.Mutex // guards names
	names map[string]bool
}

// sharedAtMost bounds what is remembered.
const sharedAtMost = 10_000

func (s *sharedNames) note(name string, shared bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !shared:
		delete(s.names, name)
		return
	case s.names == nil || len(s.names) >= sharedAtMost:
		s.names = map[string]bool{}
	}
	s.names[name] = true
}

func (s *sharedNames) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name]
}
