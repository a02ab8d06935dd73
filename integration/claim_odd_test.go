package integration_test

import (
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Each returned claim contains one invalid value, so no process can end it.
func hostileClaims() (list []bson.D) {
	sound := bson.D{field("state", "claimed"), field("slot", "s"), field("slotFence", int64(1)),
		field("session", bson.NewObjectID()), field("batch", bson.NewObjectID()),
		field("attempts", int64(1)), field("locks", "distlock")}
	for i, part := range sound {
		values := []any{bson.A{part.Value}} // the embedded server has no Decimal128
		switch part.Key {
		case "slot":
			values = append(values, "")
		case "slotFence":
			values = append(values, 1e300, math.MaxInt64)
		case "attempts":
			values = append(values, -5)
		}
		for _, value := range values {
			mark := slices.Clone(sound)
			mark[i].Value = value
			list = append(list, mark)
		}
	}
	return list
}
