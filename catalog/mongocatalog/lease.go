package mongocatalog

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// This file builds the commands of leases.

// watched returns the condition that an exclusive holder's lease still has the watched renewal, or
// nil if the lease does not matter. A renewal removes all other leases, so the lease is the only
// one.
func watched(h catalog.Holder) bson.D {
	if h.Renewal == 0 {
		return nil
	}
	return bson.D{
		{Key: "leases.0.ts", Value: h.TS}, {Key: "leases.0.n", Value: h.Renewal},
		{Key: "leases.1", Value: absent},
	}
}

// leased requires that the session has a lease with these fields.
func leased(s catalog.Session, like ...bson.E) bson.D {
	return bson.D{{Key: "$elemMatch", Value: append(bson.D{{Key: "ts", Value: s.TS}}, like...)}}
}

// renewing is transition.Renew with the server's clock.
func renewing(r catalog.Renewal) modification {
	local := bson.NewDateTimeFromTime(r.Local)
	newer := func(like ...bson.E) bson.D {
		return bson.D{{Key: "leases", Value: leased(r.Session, like...)}}
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
			{Key: "rev", Value: call("$add", call("$ifNull", "$rev", int64(0)), int64(1))},
		}),
	}}
}
