package queue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/queue"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/watch"
	"mongodlm/pinger"
)

// MarkQueued may be called while the loop ends, without a data race.
func TestQueue_QueuedWhileTheLoopEnds_NoDataRace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first, second := w.register(), w.register()
		w.MarkQueued(first, catalog.Lock{Name: "a"}, 0)
		w.Unregister(first)
		w.loops.Go(func() {
			time.Sleep(10 * time.Second) // the loop has found no session, and ended
			w.MarkQueued(second, catalog.Lock{Name: "a"}, 0)
		})
		time.Sleep(20 * time.Second)
		w.Unregister(second)
		w.close()
	})
}

// A waiter costs no command after its grant, even before its session receives the grant.
func TestQueue_WaiterWithItsGrant_CostsNoCommand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one := w.register()
		w.MarkQueued(one, catalog.Lock{Name: "a"}, 0)
		synctest.Wait() // the loop waits for the next poll
		before := w.commands.Load()
		w.Deliver([]catalog.Grant{{Session: catalog.Session{Name: "a", TS: w.last}, Process: "p"}})
		time.Sleep(time.Minute)
		if n := w.commands.Load() - before; n != 0 || len(one.Granted) != 1 {
			t.Errorf("%d commands after the grant, %d grants", n, len(one.Granted))
		}
		w.Unregister(one)
		w.close()
	})
}

type world struct {
	*queue.Queue
	*memcatalog.Catalog

	commands atomic.Int64
	last     bson.ObjectID // the session registered last
	closed   chan struct{}
	loops    sync.WaitGroup
}

func (w *world) Snapshots(ctx context.Context, names []string) (map[string]catalog.Snapshot, error) {
	w.commands.Add(1)
	return w.Catalog.Snapshots(ctx, names)
}

func (w *world) HeldOrFree(ctx context.Context, process string, names, queues []string) (
	[]catalog.Lock, error,
) {
	w.commands.Add(1)
	return w.Catalog.HeldOrFree(ctx, process, names, queues)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Catalog: memcatalog.New(memcatalog.Options{}), closed: make(chan struct{})}
	p := assert.Value(pinger.New(t.Context(), pinger.Config{
		Store: w.Catalog, Owner: struct{ pinger.Owner }{},
		NewProcess: func() (string, error) { return "p", nil },
		Interval:   time.Second, Takeover: time.Minute,
	}))(t)
	w.Queue = queue.New(queue.Config{
		Store: w, Judge: &watch.Judge{Pinger: p}, Pinger: p, Clock: clock.System(),
		Ping: time.Second, Poll: time.Second, PollMax: time.Second, MaxWatchGap: time.Minute,
		Closed: w.closed, Go: w.loops.Go,
	})
	return w
}

func (w *world) register() *queue.Waiter {
	w.last = bson.NewObjectID()
	return w.Register(catalog.Request{
		Session: catalog.Session{Name: "a", TS: w.last}, Process: "p",
	})
}

func (w *world) close() {
	close(w.closed)
	w.loops.Wait()
}

func TestMain(m *testing.M) { effort.Main(m) }
