package integration_test

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// pace is by how much slower than usual this machine is now, 1 to 4: other programs may have its
// processors. All times of the tests' processes are that much longer. It is measured once, by
// startAll, before any test goes on.
var pace = 1.0

func paced(d time.Duration) time.Duration { return time.Duration(float64(d) * pace) }

// usual is what a write through the embedded server costs with the race detector, on two cores that
// have little else to do.
const usual = 12 * time.Millisecond

// measurePace times writes through the embedded server, which are made by this very program.
func measurePace(ctx context.Context, client *mongo.Client) error {
	const writes = 40
	db := client.Database(databaseName())
	begun := time.Now()
	for range writes {
		update := bson.D{{Key: "$set", Value: bson.D{{Key: "at", Value: time.Now()}}}}
		_, err := db.Collection("pace").UpdateOne(ctx, byID("x"), update)
		if err != nil {
			return err
		}
	}
	pace = min(4, max(1, float64(time.Since(begun)/writes)/float64(usual)))
	return db.Drop(ctx)
}
