package configserver_test

import (
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
)

// BenchmarkFront_16Clients measures the commands per second of 16 clients. Reads run in parallel.
// Writes run one after another.
func BenchmarkFront_16Clients(b *testing.B) {
	locks := connect(b, start(b, configserver.Config{}).URI()).Database("config").Collection("locks")
	document := bson.D{{Key: "_id", Value: "balancer"}, {Key: "fence", Value: int64(0)}}
	assert.Value(locks.InsertOne(b.Context(), document))(b)
	b.Run("finds", func(b *testing.B) {
		spread(b, func() error { return locks.FindOne(b.Context(), byID("balancer")).Err() })
	})
	b.Run("writes", func(b *testing.B) {
		update := d("$inc", d("fence", int64(1)))
		spread(b, func() error {
			return locks.FindOneAndUpdate(b.Context(), byID("balancer"), update).Err()
		})
	})
}

// spread runs b.N commands from 16 goroutines.
func spread(b *testing.B, command func() error) {
	b.Helper()
	work := make(chan struct{})
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range work {
				assert.NoErr(b, command())
			}
		})
	}
	b.ResetTimer()
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	clients.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
}
