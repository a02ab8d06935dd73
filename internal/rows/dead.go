package rows

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Dying is documented in [Store].
func (m *Mongo) Dying(ctx context.Context, slot Slot, fence, most int64) ([]bson.RawValue, error) {
	filter := append(m.of(slot), e(m.at("slotFence"), not(bson.D{e("$gte", fence)})),
		e(m.at("waiting"), bson.D{e("$ne", true)}), e(m.at("attempts"), bson.D{e("$gte", most)}))
	found, _, err := m.find(ctx, filter, options.Find().SetLimit(lot).SetProjection(bson.D{e("_id", 1)}))
	var ids []bson.RawValue
	for _, row := range found {
		ids = append(ids, row.ID)
	}
	return ids, err
}

// Documents is documented in [Store].
func (m *Mongo) Documents(ctx context.Context, ids []bson.RawValue) ([]Row, error) {
	found, _, err := m.find(ctx, bson.D{e("_id", in(ids))}, options.Find())
	return found, err
}
