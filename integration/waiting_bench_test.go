package integration_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

var (
	fairFor = flag.Duration("fairfor", 30*time.Second, "how long BenchmarkWaiting lets sixteen "+
		"contenders run for turns")
	handOvers = flag.Int("handovers", 200, "how many hand-overs BenchmarkWaiting times in each row")
)

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
			w.part(b, "idle", w.countIdle)
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

// leastWrite returns the median time of a durable update of one small document.
func (w *world) leastWrite(b *testing.B) time.Duration {
	b.Helper()
	durable := options.Collection().SetWriteConcern(&writeconcern.WriteConcern{
		W: writeconcern.WCMajority, Journal: new(true)})
	if w.d.name == "embedded" {
		durable = options.Collection()
	}
	work := w.db.Collection("distlock_it_work", durable)
	id := w.name("least")
	w.plant(b, "distlock_it_work", bson.D{field("_id", id), field("n", int64(0))})
	var took []time.Duration
	for range 100 {
		begun := time.Now()
		_, err := work.UpdateOne(b.Context(), byID(id), bson.D{field("$inc", bson.D{field("n", 1)})})
		assert.Must(b, err)
		took = append(took, time.Since(begun))
	}
	return quantile(took, 50)
}

func quantile(took []time.Duration, percent int) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, len(took)*percent/100)]
}

// contenders starts processes with the default configuration. Each process has a separate client.
func (w *world) contenders(b *testing.B, processes int, sent *counter) (all []*distlock.Manager) {
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
	var sent counter
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
			sent.reset()
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
			b.Fatalf("the lock was not handed over: %v", sent.all())
		}
		took = append(took, next.at.Sub(begun))
		assert.NoErr(b, <-released)
		enter(holder.by)
		holder = next
	}
	counts := sent.all()
	after := w.leastWrite(b)
	cancel()
	calls.Wait()
	assert.NoErr(b, holder.guard.Release())
	w.row(b, (before+after)/2, took, counts, rounds)
}

// row reports times as multiples of the duration of one small write, and the number of commands per
// hand-over. It reports getMores separately, because a change stream sends a getMore each second,
// even without events.
func (w *world) row(b *testing.B, write time.Duration, took []time.Duration, counts map[string]int,
	rounds int) {
	b.Helper()
	commands := 0
	for command, n := range counts {
		if command != "getMore" && !strings.HasSuffix(command, catalog.PingsCollection) {
			commands += n
		}
	}
	for _, percent := range []int{50, 90, 99} {
		inWrites := float64(quantile(took, percent)) / float64(write)
		b.ReportMetric(inWrites, fmt.Sprintf("writes-p%d", percent))
	}
	b.ReportMetric(float64(write)/float64(time.Millisecond), "write-ms")
	b.ReportMetric(float64(commands)/float64(rounds), "commands")
	b.ReportMetric(float64(counts["getMore"])/float64(rounds), "getMores")
	b.Logf("%d hand-overs: %v", rounds, counts)
}

// timeContention lets sixteen processes compete for a lock. Each process repeatedly acquires the
// lock and releases it at once.
func (w *world) timeContention(b *testing.B) {
	const processes = 16
	var sent counter
	all := w.contenders(b, processes, &sent)
	name := w.name("fair")
	before := w.leastWrite(b)
	var (
		turns    [processes]int
		mu       sync.Mutex // guards took
		took     []time.Duration
		released atomic.Int64
		running  sync.WaitGroup
	)
	sent.reset()
	begun := time.Now()
	for i, m := range all {
		running.Go(func() {
			for time.Since(begun) < *fairFor {
				g, err := m.Lock(name).Lock(b.Context())
				at := time.Since(begun)
				if err != nil {
					b.Error(err)
					return
				}
				turns[i]++
				if from := released.Load(); from > 0 {
					mu.Lock()
					took = append(took, at-time.Duration(from))
					mu.Unlock()
				}
				released.Store(int64(time.Since(begun)))
				assert.NoErr(b, g.Release())
			}
		})
	}
	running.Wait()
	spent := time.Since(begun)
	counts := sent.all()
	after := w.leastWrite(b)
	total := 0
	for _, n := range turns {
		total += n
	}
	fewest, most := slices.Min(turns[:]), slices.Max(turns[:])
	fair := float64(fewest) / float64(max(1, most))
	b.ReportMetric(fair, "fairness")
	w.row(b, (before+after)/2, took, counts, total)
	b.Logf("%d to %d turns of each of %d in %v, %.1f turns/s", fewest, most, processes,
		spent.Round(time.Second), float64(total)/spent.Seconds())
}

// countIdle compares the number of commands of 1,000 idle waiters of twenty locks with the number
// of commands of one waiter.
func (w *world) countIdle(b *testing.B) {
	holder := w.start(b, slow)
	var rates []float64
	var all []map[string]int
	for _, crowd := range []struct{ waiters, locks int }{{1, 1}, {1000, 20}} {
		var sent counter
		m := w.counted(b, &sent, slow)
		leave := w.crowd(b, holder, m, crowd.waiters, crowd.locks)
		w.settledDown(b, m, &sent)
		sent.reset()
		begun := time.Now()
		select {
		case <-time.After(max(*benchFor, 10*time.Second)):
		case <-b.Context().Done():
		}
		rates = append(rates, float64(sent.total())/time.Since(begun).Seconds())
		all = append(all, sent.all())
		leave()
	}
	b.ReportMetric(rates[0], "commands/s-of-1")
	b.ReportMetric(rates[1], "commands/s-of-1000")
	b.Logf("one waiter: %v; 1,000 of 20 locks: %v", all[0], all[1])
}

// settledDown waits until the waiters send few commands. An idle process sends at most seven
// commands in 4*PollMax: four queries, two getMores of a stream and a snapshot.
func (w *world) settledDown(t testing.TB, m *distlock.Manager, sent *counter) {
	t.Helper()
	eventually(t, time.Minute, "the waiters send few commands", func() bool {
		before := sent.total()
		select {
		case <-time.After(4 * m.Config().PollMax):
		case <-t.Context().Done():
		}
		return sent.total()-before <= 7
	})
}

// crowd makes many callers of m wait for locks that holder holds, and returns when all are queued.
// The returned function ends the calls and releases the locks.
func (w *world) crowd(
	t testing.TB, holder, m *distlock.Manager, waiters, locks int,
) (leave func()) {
	t.Helper()
	var guards []*distlock.TryGuard
	prefix := fmt.Sprintf("idle-%d-", waiters)
	for i := range locks {
		guards = append(guards, w.mustTry(t, holder, w.name(fmt.Sprintf("%s%d", prefix, i))))
	}
	const together = 20 // the number of callers that leave at a time
	var groups []func()
	for first := 0; first < waiters; first += together {
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for i := first; i < min(waiters, first+together); i++ {
			calls.Go(func() { // ends with ctx
				_, err := m.Lock(w.name(fmt.Sprintf("%s%d", prefix, i%locks))).Lock(ctx)
				assert.Is(t, err, context.Canceled)
			})
		}
		leave := func() { cancel(); calls.Wait() }
		t.Cleanup(leave) // the calls use t, so they must end before the test
		groups = append(groups, leave)
	}
	eventually(t, 3*time.Minute, "all callers are queued", func() bool {
		return w.waitersOf(t, prefix) == waiters
	})
	return func() {
		for _, leave := range groups {
			leave()
		}
		for _, g := range guards {
			assert.NoErr(t, g.Release())
		}
	}
}

// waitersOf counts the waiters of all locks whose names have the given prefix.
func (w *world) waitersOf(t testing.TB, prefix string) int {
	t.Helper()
	filter := byID(bson.D{field("$regex", "^"+w.name(prefix))})
	cursor := assert.Value(w.db.Collection(catalog.LocksCollection).Find(t.Context(), filter))(t)
	var docs []bson.Raw
	assert.Must(t, cursor.All(t.Context(), &docs))
	n := 0
	for _, doc := range docs {
		line, ok := doc.Lookup("waiters").ArrayOK()
		if !ok {
			continue
		}
		values := assert.Value(line.Values())(t)
		n += len(values)
	}
	return n
}
