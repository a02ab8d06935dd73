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
	"mongodlm/internal/test/effort"
	"mongodlm/internal/watch"
	"mongodlm/pinger"
)

// process is a process that only waits.
type process struct{}

func (process) Process() string                                 { return "p" }
func (process) Term() *pinger.Term                              { return nil }
func (process) SetServer(catalog.Server)                        {}
func (process) Server() catalog.Server                          { return catalog.Server{} }
func (process) Jitter(d time.Duration, _ float64) time.Duration { return d }

// Tries to break, with the race detector: the loop may end at the instant at which a session is
// queued.
func TestQueue_QueuedWhileTheLoopEnds_NoDataRace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		closed, loops := make(chan struct{}), sync.WaitGroup{}
		q := queue.New(queue.Config{
			Store: memcatalog.New(memcatalog.Options{}), Process: process{}, Clock: clock.System(),
			Judge: &watch.Judge{Process: process{}},
			Ping:  time.Second, Poll: time.Second, PollMax: time.Second, MaxWatchGap: time.Minute,
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
