package mongocatalog

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// sessionsOf is the filter for the locks that the given process holds or waits for. Each branch of
// the $or has an index. The first condition on state is the filter of the partial index on process,
// so that the server can use this index.
func sessionsOf(process string) bson.D {
	return either(
		bson.D{{Key: "process", Value: process}, {Key: "state", Value: positive}},
		bson.D{{Key: "sharers.process", Value: process}, {Key: "state", Value: positive}},
		call("waiters.process", process),
	)
}

// sessionFields is the projection of Held. It omits the waiters of other processes.
func sessionFields(process string) bson.D {
	own := call("$eq", "$$p.process", literal(process))
	return append(only("state", "process", "ts", "fence", "mode", "limit", "sharers.ts",
		"sharers.process", "sharers.fence"),
		bson.E{Key: "waiters", Value: where(array("$waiters"), own)})
}

// whole is the condition that [catalog.ParseLock] accepts the document.
func whole() bson.E { return bson.E{Key: "$expr", Value: every(understood()...)} }

// observation returns the pipeline that reads lock documents, the pings of their holders and
// waiters, and the server's clock. Each lock document is in a subdocument, so that its fields
// cannot conflict with the fields that the pipeline adds.
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

func among(field string, texts []string) bson.D { return call(field, call("$in", texts)) }

// queued is the filter for the locks with waiters. The condition on the process lets the server use
// an index.
func queued() bson.D { return call("waiters.process", there) }

// heldOrFree is the filter of [catalog.Queues.HeldOrFree].
func heldOrFree(process string, names, always []string) bson.D {
	or := bson.A{
		call("process", process), call("sharers.process", process), call("state", int32(0)),
	}
	if len(always) > 0 {
		or = append(or, among("_id", always))
	}
	return append(among("_id", names), bson.E{Key: "$or", Value: or})
}

// withoutTexts is a projection without the informational fields of waiters. The client needs the
// other fields to detect a malformed document. A check on the server would cost more than the rest
// of the query.
var withoutTexts = bson.D{
	{Key: "waiters.who", Value: int32(0)}, {Key: "waiters.why", Value: int32(0)},
	{Key: "waiters.since", Value: int32(0)}, {Key: "waiters.takeoverMS", Value: int32(0)},
}

func heldByAny(processes []string) bson.D {
	held := bson.E{Key: "state", Value: positive}
	return either(
		append(among("process", processes), held), append(among("sharers.process", processes), held))
}

func awaitedByAny(processes []string) bson.D { return among("waiters.process", processes) }
