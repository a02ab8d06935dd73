package mongocatalog

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// This file has the rules of [catalog.ParseLock] as aggregation expressions, for commands that must
// not match malformed documents. An expression here must not fail for any document, because one
// failure makes the whole command fail with an error that does not describe the document.

// call returns an operator with its arguments. Several arguments become an array.
func call(operator string, args ...any) bson.D {
	if len(args) == 1 {
		return bson.D{{Key: operator, Value: args[0]}}
	}
	return bson.D{{Key: operator, Value: bson.A(args)}}
}

func every(conditions ...any) bson.D { return bson.D{{Key: "$and", Value: bson.A(conditions)}} }
func either(conditions ...any) bson.D {
	return bson.D{{Key: "$or", Value: bson.A(conditions)}}
}
func not(condition any) bson.D { return call("$not", bson.A{condition}) }

func choose(condition, then, otherwise any) bson.D {
	return call("$cond", condition, then, otherwise)
}

// literal returns v as a constant. Without $literal, the server would read a string that begins
// with "$" as the name of a field.
func literal(v any) bson.D { return call("$literal", v) }

func typeIs(field any, types ...string) bson.D {
	return call("$in", call("$type", field), types)
}

// array returns the field if it is an array, and otherwise an empty array.
func array(field any) bson.D { return choose(call("$isArray", bson.A{field}), field, bson.A{}) }

// each applies an expression to every element of an array. In the expression, "$$p" is the element.
func each(input, in any) bson.D {
	return call("$map", bson.D{
		{Key: "input", Value: input}, {Key: "as", Value: "p"}, {Key: "in", Value: in},
	})
}

// where returns the elements of an array that meet the condition. In the condition, "$$p" is the
// element.
func where(input, condition any) bson.D {
	return call("$filter", bson.D{
		{Key: "input", Value: input}, {Key: "as", Value: "p"}, {Key: "cond", Value: condition},
	})
}

func first(list any) bson.D { return call("$arrayElemAt", list, int32(0)) }

func isHeld() bson.D { return call("$gt", "$state", int32(0)) }

// isShared is the condition that the holders of the lock are in the field sharers.
func isShared() bson.D { return every(call("$in", "$mode", shareable), sharersCount()) }

var shareable = bson.A{string(catalog.Shared), string(catalog.Permit)}

// limitOf returns the number of permits in a field. If [catalog.ParseLock] rejects the number,
// limitOf returns 0.
func limitOf(field any) bson.D {
	number := converted(field, "int")
	valid := every(
		call("$eq", number, field),
		call("$gt", number, int32(0)),
		typeIs(field, "int", "long", "double"),
	)
	return choose(valid, number, int32(0))
}

// converted converts a number to another type, or to null if the conversion fails.
func converted(field any, to string) bson.D {
	return call("$convert", bson.D{
		{Key: "input", Value: field}, {Key: "to", Value: to},
		{Key: "onError", Value: nil}, {Key: "onNull", Value: nil},
	})
}

// understood returns the conditions under which [catalog.ParseLock] accepts a document.
func understood() bson.A {
	return bson.A{
		either(not(isHeld()), every(typeIs("$ts", "objectId"), call("$ne", "$ts", bson.NilObjectID))),
		once(),
		typeIs("$state", "int", "long", "double"),
		call("$gte", "$state", int32(0)),
		call("$eq", "$state", converted("$state", "long")),
		either(
			not(typeIs("$state", "double")),
			call("$lte", "$state", int64(1<<53)),
		),
		counter("$fence"),
		counter("$rev"),
		either(not(isHeld()), typeIs("$process", "string", "missing", "null", "undefined")),
		participants("$waiters", true),
		participants("$sharers", false),
		either(not(sharersCount()), every(
			call("$in", "$mode", shareable),
			either(call("$eq", "$mode", string(catalog.Shared)), call("$gt", limitOf("$limit"), int32(0))),
		)),
		either(call("$ne", "$state", int32(1)), sharersCount(), every(
			not(call("$in", "$mode", shareable)),
			call("$eq", call("$size", array("$sharers")), int32(0)),
		)),
	}
}

func absentIn(field string) bson.D { return typeIs(field, "missing", "null", "undefined") }

// counter is the condition that the given field, a fence or a rev, is missing or has a number that
// the next change can still increase.
func counter(field string) bson.D {
	return either(typeIs(field, "missing"), every(
		typeIs(field, "int", "long"),
		call("$gte", field, int32(0)),
		call("$lte", field, choose(isHeld(), int64(catalog.MaxCountHeld), int64(catalog.MaxCount))),
	))
}

// sharersCount is the condition that the field sharers is valid: the lock is held, and its first
// sharer is the holder in the top-level fields.
func sharersCount() bson.D {
	return every(
		isHeld(),
		call("$gt", call("$size", array("$sharers")), int32(0)),
		call("$eq", first(each(array("$sharers"), "$$p.ts")), "$ts"),
	)
}

// participants is the condition that a field is absent or an array of holders or waiters. Only
// waiters have a mode and a limit of their own.
func participants(field string, wait bool) bson.D {
	conditions := []any{
		typeIs("$$p.ts", "objectId"),
		call("$ne", "$$p.ts", bson.NilObjectID),
		typeIs("$$p.process", "string"),
		call("$ne", "$$p.process", ""),
	}
	if wait {
		conditions = append(conditions,
			either(absentIn("$$p.mode"), call("$in", "$$p.mode", append(bson.A{""}, shareable...))),
			either(call("$ne", "$$p.mode", string(catalog.Permit)),
				call("$gt", limitOf("$$p.limit"), int32(0))))
	}
	return either(absentIn(field), every(
		call("$isArray", bson.A{field}),
		call("$allElementsTrue", bson.A{each(array(field), every(conditions...))}),
	))
}

// once is the condition that no session occurs twice among the holders and waiters.
func once() bson.D {
	all := call("$concatArrays", holding("$$p.ts", "$ts"), each(array("$waiters"), "$$p.ts"))
	return call("$eq", call("$size", call("$setUnion", bson.A{all})), call("$size", all))
}

// lastFence returns the fence to which the next grant adds 1. If the fence in the document is at
// least transition.Seeded, lastFence returns this fence. Otherwise it returns the larger of this
// fence and the server's time in milliseconds minus 1.
func lastFence() bson.D {
	now := call("$subtract", call("$toLong", "$$NOW"), int64(1))
	counted := call("$lt", fenceOf(), int64(transition.Seeded))
	return choose(counted, call("$max", fenceOf(), now), fenceOf())
}

func fenceOf() bson.D { return call("$ifNull", "$fence", int64(0)) }

// holding returns an array with one value for each holder. For a sharer, the value is the first
// argument, an expression in which "$$p" is the sharer. For an exclusive holder, the value is the
// second argument.
func holding(sharer, alone any) bson.D {
	return choose(isShared(), each(array("$sharers"), sharer),
		choose(isHeld(), bson.A{alone}, bson.A{}))
}
