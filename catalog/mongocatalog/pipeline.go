package mongocatalog

import (
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/queue"
)

// This file is package queue in the server's words: an update pipeline for each transition, with
// operators of MongoDB 4.4. A test without a server runs it beside that package.

// work is the field in which a pipeline keeps what it has worked out. It is gone in the end.
const work = "__q"

// worked is a value worked out by an earlier stage.
func worked(field string) string { return "$" + work + "." + field }

// A turn is one transition.
type turn struct {
	leaves  *bson.ObjectID // who goes, if anybody
	plain   bool           // a lock of one holder for which nobody waits keeps all but its state
	enters  *catalog.Grant // who comes, if anybody
	how     catalog.Line
	granted string // evidence for who is granted
}

// pipeline is the update of a turn. Its stages: who holds and waits, who does after one left or
// entered, how many are granted, with which fences, whether anything changes, and the writing.
func (t turn) pipeline() bson.A {
	stages := bson.A{
		setting(bson.D{{Key: "shared", Value: isShared()}}),
		setting(bson.D{
			{Key: "holders", Value: choose(worked("shared"), "$sharers",
				choose(isHeld(), bson.A{bson.D{{Key: "ts", Value: "$ts"}}}, bson.A{}))},
			{Key: "mode", Value: choose(worked("shared"), "$mode", "")},
			{Key: "limit", Value: choose(worked("shared"), permitsOf("$mode", "$limit"), int32(0))},
			{Key: "line", Value: array("$waiters")},
		}),
	}
	if t.enters != nil {
		stages = append(stages, t.entering())
	} else {
		stages = append(stages, t.leaving())
	}
	stages = append(stages, counting()...)
	return append(stages,
		granting(),
		t.concluding(),
		t.writing(),
		call("$unset", work),
	)
}

// setting is a stage that keeps values for later ones.
func setting(values bson.D) bson.D {
	set := make(bson.D, 0, len(values))
	for _, e := range values {
		set = append(set, bson.E{Key: work + "." + e.Key, Value: e.Value})
	}
	return call("$set", set)
}

func (t turn) leaving() bson.D {
	holders, line := any(worked("holders")), any(worked("line"))
	if t.leaves != nil {
		others := call("$ne", "$$p.ts", *t.leaves)
		holders, line = where(holders, others), where(line, others)
	}
	alone := every(t.plain,
		call("$eq", call("$size", array("$sharers")), int32(0)),
		call("$eq", call("$size", worked("line")), int32(0)))
	return setting(bson.D{
		{Key: "allowed", Value: true},
		{Key: "alone", Value: alone},
		{Key: "moved", Value: call("$lt",
			call("$size", holders), call("$size", worked("holders")))},
		{Key: "holders", Value: holders},
		{Key: "line", Value: line},
	})
}

// entering puts the session at the end of the line, or at its front if it barges and could hold the
// lock at once. It is not allowed to one that stands in the document already, and where another
// limit is in use. A document that is not understood is left alone; only one that was just made has no
// state, see entry.
func (t turn) entering() bson.D {
	g := *t.enters
	held := call("$size", worked("holders"))
	nobody := call("$eq", held, int32(0))
	unused := every(nobody, call("$eq", call("$size", worked("line")), int32(0)))
	recorded := choose(isHeld(), worked("limit"),
		permitsOf(first(each(worked("line"), "$$p.mode")), first(each(worked("line"), "$$p.limit"))),
	)
	entry := entryOf(g)
	line := call("$concatArrays", worked("line"), bson.A{entry})
	if t.how == catalog.Barge {
		fits := nobody
		if g.Mode != catalog.Exclusive {
			most := int32(catalog.MaxHolders)
			if g.Mode == catalog.Permit {
				most = min(most, g.Limit)
			}
			fits = every(either(nobody, call("$eq", worked("mode"), string(g.Mode))),
				call("$lt", held, most))
		}
		line = choose(fits, call("$concatArrays", bson.A{entry}, worked("line")), line)
	}
	return setting(bson.D{
		{Key: "allowed", Value: every(
			either(typeIs("$state", "missing"), every(understood()...)),
			not(stands(g.TS)),
			either(unused, call("$eq", recorded, g.Limit)),
		)},
		{Key: "alone", Value: false},
		{Key: "moved", Value: false},
		{Key: "line", Value: line},
	})
}

// entryOf is queue.Entry with the server's clock.
func entryOf(g catalog.Grant) bson.D {
	entry := queue.Entry(g, time.Time{})
	for i, e := range entry {
		entry[i].Value = any(literal(e.Value))
		if e.Key == "since" {
			entry[i].Value = "$$NOW"
		}
	}
	return entry
}

// counting finds out how many from the front of the line are granted: a run of the same mode and
// limit, as far as the holders leave room.
func counting() bson.A {
	held, line := call("$size", worked("holders")), worked("line")
	kind, next := worked("kind"), worked("kind.mode")
	apart := call("$indexOfArray",
		each(worked("kinds"), call("$eq", "$$p", kind)), false)
	run := worked("run")
	room := choose(
		every(call("$gt", held, int32(0)),
			either(call("$eq", next, ""), call("$ne", next, worked("mode")))),
		int32(0),
		choose(call("$eq", next, ""), int32(1),
			call("$max", int32(0), call("$subtract", call("$min", int32(catalog.MaxHolders),
				choose(call("$eq", next, string(catalog.Shared)), int32(catalog.MaxHolders),
					worked("kind.limit"))), held))),
	)
	return bson.A{
		setting(bson.D{{Key: "kinds", Value: each(line, bson.D{
			{Key: "mode", Value: modeOf("$$p.mode")},
			{Key: "limit", Value: permitsOf("$$p.mode", "$$p.limit")},
		})}}),
		setting(bson.D{{Key: "kind", Value: first(worked("kinds"))}}),
		setting(bson.D{{Key: "run", Value: apart}}),
		setting(bson.D{{Key: "count", Value: choose(every(worked("allowed"), grantable()),
			call("$min", choose(call("$lt", run, int32(0)), call("$size", line), run), room),
			int32(0))}}),
	}
}

// granting makes holders of those who are granted, each with a fence of its own.
func granting() bson.D {
	field := func(name string) bson.E {
		return bson.E{Key: name, Value: call("$let", bson.D{
			{Key: "vars", Value: bson.D{
				{Key: "w", Value: call("$arrayElemAt", worked("line"), "$$p")},
			}},
			{Key: "in", Value: "$$w." + name},
		})}
	}
	return setting(bson.D{
		{Key: "granted", Value: each(call("$range", int32(0), worked("count")), bson.D{
			field("ts"), field("process"), field("who"), field("why"), field("takeoverMS"),
			{Key: "when", Value: "$$NOW"},
			{Key: "fence", Value: call("$toLong", call("$add", lastFence(), "$$p", int32(1)))},
		})},
		{Key: "rest", Value: call("$slice",
			worked("line"), worked("count"), int32(math.MaxInt32))},
	})
}

// concluding says who holds the lock now, and whether there is anything to write.
func (t turn) concluding() bson.D {
	some := call("$gt", worked("count"), int32(0))
	changed := any(true)
	switch {
	case t.enters != nil:
		got := any(call("$in", t.enters.TS, each(worked("granted"), "$$p.ts")))
		if t.how == catalog.Queue {
			got = either(got,
				call("$lte", call("$size", worked("rest")), int32(catalog.MaxWaiters)))
		}
		changed = every(worked("allowed"), got)
	case t.leaves == nil:
		changed = some
	}
	after := call("$concatArrays", worked("holders"), worked("granted"))
	empty := call("$eq", call("$size", worked("holders")), int32(0))
	return setting(bson.D{
		{Key: "changed", Value: changed},
		{Key: "some", Value: every(changed, some)},
		{Key: "moved", Value: every(changed, either(worked("moved"), some))},
		{Key: "mode", Value: choose(empty, worked("kind.mode"), worked("mode"))},
		{Key: "limit", Value: choose(empty, worked("kind.limit"), worked("limit"))},
		{Key: "holders", Value: after},
		{Key: "head", Value: first(after)},
	})
}

// writing is the stage that queue.Change is. When nobody holds the lock any more the last holder
// stays readable.
func (t turn) writing() bson.D {
	const gone = "$$REMOVE"
	changed, some, moved := worked("changed"), worked("some"), worked("moved")
	holders, head := worked("holders"), worked("head")
	anybody := call("$gt", call("$size", holders), int32(0))
	taken := every(moved, anybody)
	sharing := every(anybody, call("$ne", worked("mode"), ""))
	queued := every(changed, not(worked("alone")))
	rearranged := every(moved, not(worked("alone")))
	keep := func(when any, field string, value any) bson.E {
		return bson.E{Key: field, Value: choose(when, value, "$"+field)}
	}
	evidence := any(gone)
	if t.granted != "" {
		evidence = literal(t.granted)
	}
	return call("$set", bson.D{
		keep(some, "evidence", evidence),
		keep(some, "fence", call("$toLong", call("$max", each(worked("granted"), "$$p.fence")))),
		keep(some, "grants", told()),
		keep(queued, "limit", choose(call("$gt", worked("limit"), int32(0)), worked("limit"), gone)),
		keep(rearranged, "mode", choose(sharing, worked("mode"), gone)),
		keep(taken, "process", head+".process"),
		keep(changed, "rev", call("$add", call("$ifNull", converted("$rev", "long"), int64(0)), int64(1))),
		keep(rearranged, "sharers", choose(sharing, holders, gone)),
		{Key: "state", Value: choose(moved,
			choose(anybody, int32(1), int32(0)), call("$ifNull", "$state", int32(0)))},
		keep(taken, "takeoverMS", head+".takeoverMS"),
		keep(taken, "ts", head+".ts"),
		keep(queued, "waiters", choose(
			call("$gt", call("$size", worked("rest")), int32(0)), worked("rest"), gone)),
		keep(taken, "when", head+".when"),
		keep(taken, "who", head+".who"),
		keep(taken, "why", head+".why"),
	})
}

// told is the field grants, a catalog.AwardLine for each.
func told() bson.D {
	return call("$reduce", bson.D{
		{Key: "input", Value: worked("granted")},
		{Key: "initialValue", Value: ""},
		{Key: "in", Value: call("$concat", "$$value",
			grantLine(call("$toString", "$$this.ts"), "$$this.fence", "$$this.process"))},
	})
}

// grantLine is one line of the field grants, a catalog.AwardLine.
func grantLine(ts, fence, process any) bson.D {
	return call("$concat", ts, " ", call("$toString", fence), " ", process, "\n")
}
