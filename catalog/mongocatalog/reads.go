package mongocatalog

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file builds the reads.

// standing is the filter for the locks that process holds or waits for. Each branch has an index of
// the locks with holders or waiters. The condition on state must equal the filter of the index on
// process.
func standing(process string) bson.D {
	return either(
		bson.D{{Key: "process", Value: process}, {Key: "state", Value: positive}},
		bson.D{{Key: "sharers.process", Value: process}, {Key: "state", Value: positive}},
		call("waiters.process", process),
	)
}

// standingIn is the projection of Held. It contains only the waiters of the process.
func standingIn(process string) bson.D {
	own := call("$eq", "$$p.process", literal(process))
	return append(only("state", "process", "ts", "fence", "mode", "limit", "sharers.ts",
		"sharers.process", "sharers.fence"),
		bson.E{Key: "waiters", Value: where(array("$waiters"), own)})
}

// whole is the condition that package catalog understands the document.
func whole() bson.E { return bson.E{Key: "$expr", Value: every(understood()...)} }

// observation returns the pipeline that reads lock documents, each with the pings of its holders
// and waiters, and the server's clock. The documents are in separate fields, so that the names of
// their fields do not conflict.
func observation(which ...any) bson.A {
	processes := call("$setUnion", bson.A{"$lock.process"},
		each(array("$lock.sharers"), "$$p.process"), each(array("$lock.waiters"), "$$p.process"))
	return append(bson.A(which),
		call("$project", bson.D{{Key: "_id", Value: int32(0)}, {Key: "lock", Value: "$$ROOT"}}),
		call("$addFields", call("processes", processes)),
		call("$lookup", bson.D{
			{Key: "from", Value: catalog.PingsCollection}, {Key: "localField", Value: "processes"},
			{Key: "foreignField", Value: "_id"}, {Key: "as", Value: "pings"},
		}),
		call("$addFields", call("now", "$$NOW")),
	)
}

func matching(filter bson.D) bson.D { return call("$match", filter) }

// among is the condition that a field equals one of the texts.
func among(field string, texts []string) bson.D { return call(field, call("$in", texts)) }

// queued is the filter for the locks with waiters. It requires a waiter's process, so that the
// server uses an index.
func queued() bson.D { return call("waiters.process", there) }

// heldOrFree is the filter for those locks in names that are free, held by process, or also in
// lines.
func heldOrFree(process string, names, lines []string) bson.D {
	or := bson.A{
		call("process", process), call("sharers.process", process), call("state", int32(0)),
	}
	if len(lines) > 0 {
		or = append(or, among("_id", lines))
	}
	return append(among("_id", names), bson.E{Key: "$or", Value: or})
}

// withoutWords is a projection without the informational fields of waiters. The client needs the
// other fields to check whether the document is well formed. On the server that check would cost
// more than the rest of the query.
var withoutWords = bson.D{
	{Key: "waiters.who", Value: int32(0)}, {Key: "waiters.why", Value: int32(0)},
	{Key: "waiters.since", Value: int32(0)}, {Key: "waiters.takeoverMS", Value: int32(0)},
}

// heldByAny is the filter for the locks that one of the processes holds. awaitedByAny is the filter
// for the locks that one of them waits for.
func heldByAny(processes []string) bson.D {
	held := bson.E{Key: "state", Value: positive}
	return either(
		append(among("process", processes), held), append(among("sharers.process", processes), held))
}

func awaitedByAny(processes []string) bson.D { return among("waiters.process", processes) }
