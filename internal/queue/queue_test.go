package queue_test

import (
	"sync"
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

// Tries to break, with the race detector: the loop may end at the instant at which a session is
// queued.
func TestQueue_QueuedWhileTheLoopEnds_NoDataRace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		closed, loops := make(chan struct{}), sync.WaitGroup{}
		store := memcatalog.New(memcatalog.Options{})
		p := assert.Value(pinger.New(t.Context(), pinger.Config{
			Store: store, Owner: struct{ pinger.Owner }{},
			NewProcess: func() (string, error) { return "p", nil },
			Interval:   time.Second, Takeover: time.Minute,
		}))(t)
		q := queue.New(queue.Config{
			Store: store, Judge: &watch.Judge{Pinger: p}, Pinger: p, Clock: clock.System(),
			Ping: time.Second, Poll: time.Second, PollMax: time.Second, MaxWatchGap: time.Minute,
			Closed: closed, Go: loops.Go,
		})
		register := func() *queue.Waiter {
			return q.Register(catalog.Request{
				Session: catalog.Session{Name: "a", TS: bson.NewObjectID()}, Process: "p",
			})
		}
		first, second := register(), register()
		q.MarkQueued(first, catalog.Lock{Name: "a"}, 0)
		q.Unregister(first)
		loops.Go(func() {
			time.Sleep(10 * time.Second) // the loop has found no session, and ended
			q.MarkQueued(second, catalog.Lock{Name: "a"}, 0)
		})
		time.Sleep(20 * time.Second)
		q.Unregister(second)
		close(closed)
		loops.Wait()
	})
}

func TestMain(m *testing.M) { effort.Main(m) }
