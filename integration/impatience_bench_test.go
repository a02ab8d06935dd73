package integration_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

var impatientFor = flag.Duration("impatientfor", 5*time.Second,
	"how long each row of BenchmarkImpatience runs")

// An impatience counts the calls of nine callers in three processes. Each call has a random
// deadline, and holds the lock for 4 ms if it succeeds.
type impatience struct {
	longest              time.Duration // the longest deadline
	turns, unknown, two  atomic.Int64
	calls, wrong, inside atomic.Int64
}

func (i *impatience) turn() {
	if i.inside.Add(1) > 1 {
		i.two.Add(1)
	}
	i.turns.Add(1)
	time.Sleep(4 * time.Millisecond)
	i.inside.Add(-1)
}

func (i *impatience) run(each func(ctx context.Context, process int)) {
	var all sync.WaitGroup
	end := time.Now().Add(*impatientFor)
	for n := range 9 {
		all.Go(func() {
			for time.Now().Before(end) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond+rand.N(i.longest))
				i.calls.Add(1)
				each(ctx, n%3)
				cancel()
			}
		})
	}
	all.Wait()
}

// failed counts errors that mean an unknown outcome, and undocumented errors.
func (i *impatience) failed(err error) {
	if errors.Is(err, distlock.ErrOutcomeUnknown) {
		i.unknown.Add(1)
	}
	documented := []error{context.DeadlineExceeded, distlock.ErrHeld, distlock.ErrUnavailable}
	if !slices.ContainsFunc(documented, func(one error) bool { return errors.Is(err, one) }) {
		i.wrong.Add(1)
	}
}

// BenchmarkImpatience counts the successful calls of callers with short deadlines. For comparison
// it runs a simple program that polls a document every 20 ms. The benchmark fails if two callers
// hold the lock at the same time.
func BenchmarkImpatience(b *testing.B) {
	for _, d := range named("replicaset", "mongos", "embedded", "uri") {
		b.Run(d.name, func(b *testing.B) {
			w := d.open(b)
			sent := tape{namesOnly: true}
			ms := w.contenders(b, 3, &sent)
			pair := w.pair(b, ms[0])
			b.Logf("an acquisition and its release take %v", pair)
			for _, pairs := range []int{2, 4, 8, 1000} {
				for _, kind := range []string{"polling", "Lock", "WaitAtMost", "TryLock", "Lease"} {
					w.part(b, fmt.Sprintf("pairs=%d/%s", pairs, kind), func(b *testing.B) {
						i := &impatience{longest: pair * time.Duration(pairs)}
						sent.take()
						w.impatient(b, i, ms, kind)
						commands := len(sent.names())
						b.Logf("%s: %d calls", b.Name(), i.calls.Load())
						b.ReportMetric(float64(i.turns.Load()), "turns")
						b.ReportMetric(float64(commands)/max(1, float64(i.turns.Load())), "commands/turn")
						b.ReportMetric(float64(i.unknown.Load()), "unknown")
						b.ReportMetric(float64(i.wrong.Load()), "undocumented")
						if i.two.Load() > 0 {
							b.Errorf("two callers held the lock, %d times", i.two.Load())
						}
					})
				}
			}
		})
	}
}

// pair returns the median time of an uncontended acquisition with its release.
func (w *world) pair(b *testing.B, m *distlock.Manager) time.Duration {
	b.Helper()
	name := w.name("pair")
	var took []time.Duration
	for range 30 {
		begun := time.Now()
		assert.Must(b, assert.Value(m.Lock(name).TryLock(b.Context()))(b).Release())
		took = append(took, time.Since(begun))
	}
	return quantile(took, 50)
}

func (w *world) impatient(b *testing.B, i *impatience, ms []*distlock.Manager, kind string) {
	name := w.name(fmt.Sprintf("impatient-%d", rand.N(1<<40)))
	if kind == "polling" {
		w.poll(b, i, name)
		return
	}
	i.run(func(ctx context.Context, process int) {
		lock := ms[process].Lock(name)
		var g *distlock.TryGuard
		var err error
		switch kind {
		case "Lock":
			g, err = lock.Lock(ctx)
		case "Lease":
			g, err = lock.Lock(ctx, distlock.Lease(time.Minute))
		case "WaitAtMost":
			at, _ := ctx.Deadline()
			g, err = lock.Lock(context.Background(), distlock.WaitAtMost(max(time.Until(at), 1)))
		case "TryLock":
			if g, err = lock.TryLock(ctx); err != nil {
				time.Sleep(min(20*time.Millisecond, i.longest/4))
			}
		}
		if err != nil {
			i.failed(err)
			return
		}
		i.turn()
		assert.NoErr(b, g.Release())
	})
}

// poll runs the simple program, which polls a document and does not use distlock.
func (w *world) poll(b *testing.B, i *impatience, name string) {
	w.plant(b, benchCollection, bson.D{field("_id", name), field("state", 0)})
	change := func(from bson.D, to int) bool {
		r, err := w.durably().UpdateOne(context.Background(), from, set(field("state", to)))
		return err == nil && r.ModifiedCount == 1
	}
	i.run(func(ctx context.Context, _ int) {
		for ctx.Err() == nil {
			if !change(bson.D{field("_id", name), field("state", 0)}, 1) {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			if ctx.Err() == nil {
				i.turn()
			}
			change(byID(name), 0)
			return
		}
	})
}
