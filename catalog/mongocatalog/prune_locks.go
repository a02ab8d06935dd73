package mongocatalog

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// PruneLocks is documented in [catalog.Pings]. One read in the order of _id, whatever the documents
// are, and one delete for those that may go; it names state, session and rev of each.
func (c *Catalog) PruneLocks(ctx context.Context, before time.Time, after string, most int) (
	pruned int, next string, err error,
) {
	o := on(catalog.LocksCollection, "find, remove", "prune locks")
	var statements bson.A
	looked := 0
	find := options.Find().SetSort(byID).SetLimit(int64(most))
	err = c.find(ctx, o, c.locks, call("_id", call("$gt", after)), find, func(raw bson.Raw) {
		looked++
		next, _ = raw.Lookup("_id").StringValueOK()
		if s, rev, ok := catalog.Prunable(raw, before); ok {
			statements = append(statements, removing(unused(s, rev), 1))
		}
	})
	if looked < most {
		next = ""
	}
	if err != nil || len(statements) == 0 {
		return 0, next, err
	}
	reply, err := c.write(ctx, o, deletion(o.collection, statements...))
	if err != nil {
		return 0, next, err
	}
	return matched(reply), next, nil
}

// unused is the condition that a free lock has not been written since it was read.
func unused(s catalog.Session, rev int64) bson.D {
	return bson.D{
		{Key: "_id", Value: s.Name}, {Key: "ts", Value: s.TS}, {Key: "rev", Value: rev},
		{Key: "state", Value: bson.D{{Key: "$gte", Value: int32(0)}, {Key: "$lte", Value: int32(0)}}},
		{Key: "waiters", Value: none}, unwaited,
	}
}
