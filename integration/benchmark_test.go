package integration_test

import (
	"runtime"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// BenchmarkTryLockRelease measures an uncontended acquisition and its release, which send two
// commands.
func BenchmarkTryLockRelease(b *testing.B) {
	for _, d := range deployments {
		b.Run(d.name, func(b *testing.B) {
			w := d.open(b)
			var sent counter
			client := privateClient(b, options.Client().ApplyURI(d.uri).SetMonitor(sent.monitor()))
			m := w.start(b, func(cfg *distlock.Config) {
				cfg.Client, cfg.Takeover = client, time.Minute
			})
			lock := m.Lock(w.name("balancer"))
			cycle := func() {
				guard := assert.Value(lock.TryLock(b.Context()))(b)
				assert.Must(b, guard.Release())
			}
			cycle() // the first cycle also seeds the fence
			sent.reset()
			for b.Loop() {
				cycle()
			}
			b.ReportMetric(float64(sent.total())/float64(b.N), "commands/op")
		})
	}
}

// BenchmarkHeld1000 measures a process that holds 1,000 locks: its writes and commands per ping,
// and its goroutines per lock.
func BenchmarkHeld1000(b *testing.B) { benchmarkHeld(b, large, 1000) }

// BenchmarkHeld10000 is BenchmarkHeld1000 with 10,000 locks, on fewer deployments.
func BenchmarkHeld10000(b *testing.B) {
	benchmarkHeld(b, named("standalone", "replicaset", "configsvr"), 10_000)
}

func benchmarkHeld(b *testing.B, these []*deployment, locks int) {
	for _, d := range these {
		b.Run(d.name, func(b *testing.B) {
			w := d.open(b)
			var sent counter
			before := runtime.NumGoroutine()
			m, _ := w.holdMany(b, locks, &sent)
			sent.reset()
			first := m.Stats().Pings
			for b.Loop() {
				seen := m.Stats().Pings
				eventually(b, time.Minute, "a ping", func() bool { return m.Stats().Pings > seen })
			}
			pings := float64(m.Stats().Pings - first)
			b.ReportMetric(float64(sent.writes())/pings, "writes/ping")
			b.ReportMetric(float64(sent.total())/pings, "commands/ping")
			b.ReportMetric(float64(max(0, runtime.NumGoroutine()-before))/float64(locks), "goroutines/lock")
		})
	}
}
