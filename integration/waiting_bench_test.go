package integration_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

var handOvers = flag.Int("handovers", 200,
	"how many hand-overs BenchmarkWaiting times in each row")

// BenchmarkWaiting measures the cost of waiting in a queue. It reports times as multiples of a
// least write, which is the median time of a durable update of one small document on the same
// server.
func BenchmarkWaiting(b *testing.B) {
	for _, d := range named("replicaset", "mongos", "sharded", "standalone", "embedded", "uri") {
		b.Run(d.name, func(b *testing.B) {
			w := d.open(b)
			for _, waiters := range []int{1, 16, 64} {
				w.part(b, fmt.Sprintf("waiting=%d", waiters), func(b *testing.B) {
					w.timeHandOvers(b, waiters)
				})
			}
			w.part(b, "contending=16", w.timeContention)
		})
	}
}

func (w *world) part(b *testing.B, name string, measure func(b *testing.B)) {
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			measure(b)
		}
		b.ReportMetric(0, "ns/op")
	})
}

// durably returns the collection of the benchmarks. Its writes are as durable as those of a lock.
func (w *world) durably() *mongo.Collection {
	durable := &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: new(true)}
	if w.d.name == "embedded" {
		durable = nil
	}
	return w.db.Collection(benchCollection, options.Collection().SetWriteConcern(durable))
}

const benchCollection = "distlock_it_work"

// leastWrite returns the median time of a durable update of one small document.
func (w *world) leastWrite(b *testing.B) time.Duration {
	b.Helper()
	id := w.name("least")
	w.plant(b, benchCollection, bson.D{field("_id", id), field("n", int64(0))})
	var took []time.Duration
	for range 100 {
		begun := time.Now()
		assert.Value(w.durably().UpdateOne(b.Context(), byID(id), increase("n", 1)))(b)
		took = append(took, time.Since(begun))
	}
	return quantile(took, 50)
}

func quantile(took []time.Duration, percent int) time.Duration {
	slices.Sort(took)
	return took[min(len(took)-1, len(took)*percent/100)]
}

// contenders starts processes with the default configuration. Each process has a separate client.
func (w *world) contenders(b *testing.B, processes int, sent *tape) (all []*distlock.Manager) {
	b.Helper()
	for range processes {
		client := w.client(b, sent)
		all = append(all, w.start(b, func(cfg *distlock.Config) {
			*cfg = distlock.Config{Client: client, Database: cfg.Database, Host: cfg.Host}
		}))
	}
	return all
}

type grab struct {
	guard *distlock.TryGuard
	at    time.Time
	by    int
}

// timeHandOvers measures the time from the call of Release to the return of the next Lock, with the
// given number of waiters.
func (w *world) timeHandOvers(b *testing.B, waiters int) {
	sent := tape{namesOnly: true}
	all := w.contenders(b, min(waiters+1, 17, max(2, 17-waiters/8)), &sent) // 2, 15 or 9 processes
	name := w.name(fmt.Sprintf("hand-over-%d", waiters))
	ctx, cancel := context.WithCancel(b.Context())
	var calls sync.WaitGroup
	defer func() { cancel(); calls.Wait() }()
	grabs := make(chan grab, 1)
	enter := func(i int) { // returns when the caller waits or holds the lock
		m := all[i%len(all)]
		waiting := m.Stats().Waiting
		calls.Go(func() { // ends with its turn, or with ctx
			g, err := m.Lock(name).Lock(ctx)
			at := time.Now()
			if err == nil {
				grabs <- grab{g, at, i}
			} else if !errors.Is(err, context.Canceled) {
				b.Error(err)
			}
		})
		eventually(b, time.Minute, "the caller waits", func() bool {
			return m.Stats().Waiting > waiting || len(grabs) > 0
		})
	}
	before := w.leastWrite(b)
	enter(0)
	for i := range waiters {
		enter(i + 1)
	}
	holder := <-grabs
	var took []time.Duration
	rounds := *handOvers
	warm := 2 * (waiters + 1)
	for round := range warm + rounds {
		if round == warm {
			sent.take()
			took = nil
		}
		eventually(b, time.Minute, "a waiter is queued", func() bool {
			raw, err := w.db.Collection(catalog.LocksCollection).FindOne(b.Context(), byID(name)).Raw()
			queue, _ := raw.Lookup("waiters").ArrayOK()
			queued, _ := queue.Values()
			return err == nil && len(queued) > 0
		})
		released := make(chan error, 1)
		begun := time.Now()
		go func() { released <- holder.guard.Release() }() // waited for below
		var next grab
		select {
		case next = <-grabs:
		case <-time.After(time.Minute):
			b.Fatalf("the lock was not handed over: %v", sent.names())
		}
		took = append(took, next.at.Sub(begun))
		assert.NoErr(b, <-released)
		enter(holder.by)
		holder = next
	}
	commands := sent.names()
	write := (before + w.leastWrite(b)) / 2
	cancel()
	calls.Wait()
	assert.NoErr(b, holder.guard.Release())
	w.row(b, write, took, commands, rounds)
}

// timeContention lets sixteen processes compete for a lock for ten seconds. Each process repeatedly
// acquires the lock and releases it immediately. It measures the time from the call of Release to
// the return of the next Lock.
func (w *world) timeContention(b *testing.B) {
	sent := tape{namesOnly: true}
	all := w.contenders(b, 16, &sent)
	name := w.name("contention")
	before := w.leastWrite(b)
	var (
		mu       sync.Mutex // guards the rest
		took     []time.Duration
		released time.Time
		running  sync.WaitGroup
	)
	sent.take()
	for end := time.Now().Add(10 * time.Second); len(all) > 0; all = all[1:] {
		m := all[0]
		running.Go(func() {
			for time.Now().Before(end) {
				g, err := m.Lock(name).Lock(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				if !released.IsZero() {
					took = append(took, time.Since(released))
				}
				released = time.Now()
				mu.Unlock()
				assert.NoErr(b, g.Release())
			}
		})
	}
	running.Wait()
	commands := sent.names()
	w.row(b, (before+w.leastWrite(b))/2, took, commands, len(took))
}

// row reports the times of hand-overs in least writes, and the commands of each hand-over.
func (w *world) row(
	b *testing.B, write time.Duration, took []time.Duration, commands []string, rounds int,
) {
	counts := map[string]int{} // by name and collection
	for _, command := range commands {
		counts[command]++
	}
	others := 0 // neither a getMore nor a ping
	for command, n := range counts {
		if command != "getMore" && !strings.HasSuffix(command, catalog.PingsCollection) {
			others += n
		}
	}
	for _, percent := range []int{50, 90, 99} {
		inWrites := float64(quantile(took, percent)) / float64(write)
		b.ReportMetric(inWrites, fmt.Sprintf("writes-p%d", percent))
	}
	b.ReportMetric(float64(write)/float64(time.Millisecond), "write-ms")
	b.ReportMetric(float64(others)/float64(rounds), "commands")
	// A change stream sends a getMore each second, even without events.
	b.ReportMetric(float64(counts["getMore"])/float64(rounds), "getMores")
	b.Logf("%d hand-overs: %v", rounds, counts)
}
