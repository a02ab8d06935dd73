package integration_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

var benchFor = flag.Duration("benchfor", 3*time.Second,
	"how long the benchmarks of resources watch; 5m is the long run")

// resources are the goroutines and the memory of this program.
type resources struct {
	goroutines int
	bytes      uint64
}

func used() resources {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return resources{runtime.NumGoroutine(), m.HeapInuse + m.StackInuse}
}

// measure waits for the duration in the flag -benchfor, and reports the commands per second, the
// goroutines and the memory.
func measure(b *testing.B, before resources, each int, commands func() int) {
	b.Helper()
	b.ResetTimer()
	first, begun := commands(), time.Now()
	for b.Loop() {
		select {
		case <-time.After(*benchFor):
		case <-b.Context().Done():
			b.Fatal(b.Context().Err())
		}
	}
	b.StopTimer()
	now, seconds := used(), time.Since(begun).Seconds()
	b.ReportMetric(float64(commands()-first)/seconds, "commands/s")
	b.ReportMetric(float64(now.goroutines-before.goroutines), "goroutines")
	b.ReportMetric((float64(now.bytes)-float64(before.bytes))/float64(each), "B/each")
	b.ReportMetric(float64(each), "held")
	b.ReportMetric(0, "ns/op")
}

// J4: The goroutines and commands of a process do not increase with its guards. The benchmark
// measures a process with 10,000 guards.
func BenchmarkResources_TenThousandGuards(b *testing.B) {
	const guards = 10_000
	b.Run("memory", func(b *testing.B) {
		store := fault.Wrap(memcatalog.New(memcatalog.Options{}))
		before := used()
		m, err := distlock.New(b.Context(), distlock.Config{
			Catalog: store, Ping: time.Second, Takeover: time.Minute})
		assert.Must(b, err)
		b.Cleanup(func() { closeManager(b, m) })
		held := make([]*distlock.TryGuard, guards)
		for i := range held {
			if held[i], err = m.Lock(fmt.Sprintf("lock-%05d", i)).TryLock(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		measure(b, before, guards, store.Total)
		wantAll(b, held)
	})
	for _, d := range named("standalone", "replicaset") { // embedded writes are too slow
		b.Run(d.name, func(b *testing.B) {
			w := d.open(b)
			var sent counter
			before := used()
			_, held := w.holdMany(b, guards, &sent)
			measure(b, before, guards, sent.total)
			wantAll(b, held)
		})
	}
}

// BenchmarkResources_TwoHundredProcesses measures 200 processes on one server. Each process holds a
// lock of its own. One process also holds a common lock, for which the others wait.
func BenchmarkResources_TwoHundredProcesses(b *testing.B) {
	const processes = 200
	for _, d := range named("embedded", "standalone", "replicaset") {
		b.Run(d.name, func(b *testing.B) {
			w := d.open(b)
			var sent counter
			before := used()
			held := make([]*distlock.TryGuard, processes)
			ctx, cancel := context.WithCancel(b.Context())
			var waiting sync.WaitGroup
			b.Cleanup(func() { cancel(); waiting.Wait() })
			for i := range held {
				m := w.start(b, func(cfg *distlock.Config) {
					cfg.Client, cfg.PingClient = nil, nil
					cfg.ClientOptions = options.Client().ApplyURI(d.uri).SetMonitor(sent.monitor())
					cfg.Ping, cfg.Takeover, cfg.CommandTimeout = 10*time.Second, 10*time.Minute, 30*time.Second
				})
				held[i] = w.mustTry(b, m, w.name(fmt.Sprintf("lock-%03d", i)))
				if i == 0 {
					w.mustTry(b, m, w.name("balancer"))
					continue
				}
				waiting.Go(func() { // ends with ctx
					g, err := m.Lock(w.name("balancer")).Lock(ctx)
					if err == nil {
						b.Error("two holders")
						w.keep(g)
					}
				})
			}
			measure(b, before, processes, sent.total)
			wantAll(b, held)
			cancel()
			waiting.Wait()
		})
	}
}

func closeManager(t testing.TB, m *distlock.Manager) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	defer cancel()
	assert.NoErr(t, m.Close(ctx))
}

func wantAll(b *testing.B, held []*distlock.TryGuard) {
	b.Helper()
	for _, g := range held {
		assert.Must(b, g.Err())
	}
	runtime.KeepAlive(held)
}
