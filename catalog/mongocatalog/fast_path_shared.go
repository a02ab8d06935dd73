package mongocatalog

import (
	"fmt"
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file has the commands for the common cases of a lock with several holders: a reader joins
// the readers, a permit is acquired or released, or the last holder leaves. These are the costs of
// one Enter and its Leave, in commands and in minimal writes, see fast_path.go:
//   - 16 readers: 2 commands and 2.4 minimal writes; by compare-and-set 17.6 commands and
//     3.2 minimal writes;
//   - 16 contenders for 4 permits: 2 commands and 2.2 minimal writes; by compare-and-set
//     14.6 commands and 3.1 minimal writes;
//   - 16 contenders for 16 permits: 2 commands and 3.3 minimal writes; by compare-and-set
//     16.4 commands and 7.4 minimal writes.

// most returns the largest number of holders of a lock in the mode of r.
func most(r catalog.Request) int {
	if r.Mode == catalog.Permit {
		return min(int(r.Limit), catalog.MaxHolders)
	}
	return catalog.MaxHolders
}

// sharing returns the conditions that the document of a lock with several holders is well formed.
// In mode Permit, every waiter must wait for a permit. The result also excludes a document that
// meets one of the given conditions.
func sharing(name string, mode catalog.Mode, none ...any) bson.D {
	waiters := notParticipants("waiters",
		call("mode", call("$nin", bson.A{"", string(catalog.Shared)})), isList("mode"))
	if mode == catalog.Permit {
		waiters = notParticipants("waiters",
			call("mode", call("$ne", string(catalog.Permit))), isList("mode"),
			call("limit", call("$not", call("$type", "int"))),
			call("limit", call("$lt", int32(1))), isList("limit"))
	}
	return append(wellFormed(name, slices.Concat(notParticipants("sharers"), waiters, none)),
		bson.E{Key: "mode.0", Value: absent}, bson.E{Key: "limit.0", Value: absent})
}

// shared returns the conditions that a lock is held in the given mode, which is Shared or Permit.
func shared(mode catalog.Mode, limit any) bson.D {
	if mode == catalog.Shared {
		limit = absent
	}
	return bson.D{
		stateHeld, {Key: "mode", Value: string(mode)}, {Key: "limit", Value: limit},
		{Key: "sharers", Value: isArray}, {Key: "sharers.0", Value: there},
	}
}

// sharersConsistent is the condition that the first sharer is the holder in the top-level fields,
// and that no session occurs twice.
func sharersConsistent() bson.D {
	sharers, waiters := array("$sharers"), array("$waiters")
	return every(
		call("$eq", "$ts", first(each(sharers, "$$p.ts"))),
		call("$eq", call("$add", call("$size", sharers), call("$size", waiters)),
			call("$size", call("$setUnion", each(sharers, "$$p.ts"), each(waiters, "$$p.ts")))),
	)
}

// sharedEntry returns the command that enters r in one of these cases:
//   - The document is missing. The command inserts it.
//   - The lock is free and has no waiters.
//   - The lock is held in the mode of r, has room for r, and has no waiters.
//   - The lock is a semaphore without free permits, and r may be queued.
func sharedEntry(r catalog.Request, how catalog.EnterMode) modification {
	last := fmt.Sprintf("sharers.%d", most(r)-1)
	alike := func(conditions ...bson.D) bson.D {
		d := append(shared(r.Mode, r.Limit), bson.E{Key: "sharers.ts", Value: call("$ne", r.TS)})
		return append(d, slices.Concat(conditions...)...)
	}
	free := append(append(bson.D{stateFree}, noSharers...), noWaiters...)
	taken := bson.D{{Key: last, Value: there}}
	ways := bson.A{free, alike(noWaiters, bson.D{{Key: last, Value: absent}})}
	waits := r.Mode == catalog.Permit && how == catalog.Queue
	if waits {
		ways = append(ways, alike(taken, noWaiters), alike(taken, hasWaiters))
	}
	filter := append(append(sharing(r.Name, r.Mode, full), newcomer(r.TS)...),
		bson.E{Key: "$or", Value: ways})
	return modification{filter: filter, update: enteringShared(r, waits), upsert: true}
}

// enteringShared returns the update that makes r a holder if there is room, and otherwise a waiter.
// If a session occurs twice, or the first sharer is not the holder in the top-level fields, the
// holders and waiters stay unchanged.
func enteringShared(r catalog.Request, waits bool) bson.A {
	free, gets, fence := worked("free"), worked("gets"), worked("fence")
	set := bson.D{
		when(gets, "evidence", "$$REMOVE"),
		when(gets, "fence", fence),
		when(gets, "grants", grantLine(literal(r.TS.Hex()), fence, literal(catalog.OneLine(r.Process)))),
		when(free, "mode", string(r.Mode)),
		when(free, "process", literal(r.Process)),
		{Key: "rev", Value: choose(worked("fine"), nextRev(), "$rev")},
		when(gets, "sharers", call("$concatArrays", array("$sharers"), bson.A{bson.D{
			{Key: "ts", Value: r.TS}, {Key: "process", Value: literal(r.Process)},
			{Key: "who", Value: literal(r.Who)}, {Key: "why", Value: literal(r.Why)},
			{Key: "takeoverMS", Value: r.Takeover.Milliseconds()},
			{Key: "when", Value: "$$NOW"}, {Key: "fence", Value: fence},
		}})),
		when(gets, "state", int32(1)),
		when(free, "takeoverMS", r.Takeover.Milliseconds()),
		when(free, "ts", r.TS),
		when(free, "when", "$$NOW"),
		when(free, "who", literal(r.Who)),
		when(free, "why", literal(r.Why)),
	}
	if r.Mode == catalog.Permit {
		set = append(set, when(free, "limit", r.Limit))
	}
	room := any(true)
	if waits {
		room = call("$lt", call("$size", array("$sharers")), int32(most(r)))
		set = append(set, bson.E{Key: "waiters", Value: choose(every(worked("fine"), not(gets)),
			call("$concatArrays", array("$waiters"), bson.A{entryOf(r)}), "$waiters")})
	}
	return bson.A{
		setting(bson.D{
			{Key: "free", Value: not(isHeld())}, {Key: "fence", Value: nextFence()},
			{Key: "fine", Value: either(not(isHeld()), sharersConsistent())},
		}),
		setting(bson.D{{Key: "gets", Value: every(worked("fine"), room)}}),
		call("$set", set),
		call("$unset", work),
	}
}

// sharedDeparture returns the command that removes a holder. In mode Permit, the command grants the
// permit to the first waiter. In mode Shared, it grants nothing: the lock stays held by the other
// readers, or becomes free.
func sharedDeparture(s catalog.Session, mode catalog.Mode) modification {
	fine, limit := any(sharersConsistent()), any(absent)
	next := append(append(bson.D{}, nextIsOneLine...),
		bson.E{Key: "waiters.0.mode", Value: ""}, bson.E{Key: "sharers.1", Value: there})
	if mode == catalog.Permit {
		limit, next = ourNumber(1, math.MaxInt32), nextIsOneLine
		fine = every(fine, either(call("$eq", call("$size", array("$waiters")), int32(0)), every(
			call("$eq", call("$size", "$sharers"), "$limit"),
			call("$eq", first(each(array("$waiters"), "$$p.limit")), "$limit"))))
	}
	filter := append(append(sharing(s.Name, mode), shared(mode, limit)...),
		bson.E{Key: "sharers.ts", Value: s.TS},
		bson.E{Key: "$or", Value: bson.A{noWaiters, next}},
		bson.E{Key: "$expr", Value: fine},
	)
	return modification{filter: filter, update: leavingShared(s, mode), fields: answer()}
}

func leavingShared(s catalog.Session, mode catalog.Mode) bson.A {
	some, next, fence := worked("some"), worked("next"), worked("fence")
	after, head := worked("after"), worked("head")
	rest := where("$sharers", call("$ne", "$$p.ts", s.TS))
	stages, granting := bson.A{}, bson.D{}
	if mode == catalog.Permit {
		stages = append(stages, setting(bson.D{
			{Key: "some", Value: call("$isArray", bson.A{"$waiters"})},
			{Key: "next", Value: first(array("$waiters"))},
			{Key: "fence", Value: nextFence()},
		}))
		rest = call("$concatArrays", rest, choose(some, bson.A{bson.D{
			{Key: "ts", Value: next + ".ts"}, {Key: "process", Value: next + ".process"},
			{Key: "who", Value: next + ".who"}, {Key: "why", Value: next + ".why"},
			{Key: "takeoverMS", Value: next + ".takeoverMS"},
			{Key: "when", Value: "$$NOW"}, {Key: "fence", Value: fence},
		}}, bson.A{}))
		granting = bson.D{
			when(some, "evidence", "$$REMOVE"),
			when(some, "fence", fence),
			when(some, "grants", grantLine(call("$toString", next+".ts"), fence, next+".process")),
			{Key: "waiters", Value: withoutFirst()},
		}
	}
	remain := call("$gt", call("$size", after), int32(0))
	keep := func(field string, value any, otherwise any) bson.E {
		return bson.E{Key: field, Value: choose(remain, value, otherwise)}
	}
	set := append(granting,
		keep("limit", "$limit", "$$REMOVE"),
		keep("mode", "$mode", "$$REMOVE"),
		bson.E{Key: "rev", Value: call("$add", "$rev", int64(1))},
		keep("sharers", after, "$$REMOVE"),
		keep("state", int32(1), int32(0)),
	)
	for _, field := range []string{"process", "takeoverMS", "ts", "when", "who", "why"} {
		set = append(set, keep(field, head+"."+field, "$"+field))
	}
	return append(stages,
		setting(bson.D{{Key: "after", Value: rest}}),
		setting(bson.D{{Key: "head", Value: first(after)}}),
		call("$set", set),
		call("$unset", work),
	)
}
