package mongocatalog

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// answer is the projection of the document that a release or an eviction returns. It omits the
// waiters and adds the server's clock.
func answer() bson.D {
	return append(only("state", "process", "ts", "when", "fence", "mode", "limit", "sharers.ts",
		"sharers.process", "sharers.when", "sharers.fence", "grants", "evidence"),
		bson.E{Key: "now", Value: "$$NOW"})
}

// holdsWith is the filter for the lock that s holds, alone or with others.
func holdsWith(s catalog.Session) bson.D {
	holds := call("$in", s.TS, holding("$$p.ts", "$ts"))
	return bson.D{
		{Key: "_id", Value: s.Name}, {Key: "$expr", Value: every(append(understood(), holds)...)},
	}
}

// swap returns the write of a change, on the condition that the document has not changed since it
// was read. If there was no document, read is nil. The filter compares three fields: state and ts,
// which foreign programs change, and rev, which this package changes. If rev is invalid and the
// write cannot raise it, the filter also compares sharers and waiters.
func swap(name string, read bson.Raw, change catalog.Change) modification {
	set := change.Set
	filter := bson.D{{Key: "_id", Value: name}}
	if read != nil {
		filter = append(filter, unchanged(read)...)
	} else {
		for _, field := range []string{"fence", "process", "rev", "state", "ts"} {
			filter = append(filter, bson.E{Key: field, Value: absent})
		}
		if !has(set, "state") {
			set = append(bson.D{{Key: "state", Value: int32(0)}}, set...)
		}
	}
	if next, ok := change.NextRev(read.Lookup("rev")); ok {
		set = append(bson.D{{Key: "rev", Value: next}}, set...)
	} else {
		filter = append(filter, as(read, "sharers"), as(read, "waiters"))
	}
	return modification{filter: filter, update: updating(set, change.Unset, nil), upsert: read == nil}
}

func unchanged(read bson.Raw) bson.D {
	return bson.D{as(read, "ts"), as(read, "state"), as(read, "rev")}
}

// The result is the condition that a field still has the value that was read.
func as(read bson.Raw, field string) bson.E {
	if v := read.Lookup(field); v.Type != 0 {
		return bson.E{Key: field, Value: v}
	}
	return bson.E{Key: field, Value: absent}
}

func has(d bson.D, key string) bool {
	return slices.ContainsFunc(d, func(e bson.E) bool { return e.Key == key })
}
