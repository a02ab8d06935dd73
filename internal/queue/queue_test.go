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
	"mongodlm/pinger"
)

// process is one that waits and does nothing else.
type process struct{}

func (process) Process() string                                 { return "p" }
func (process) Term() *pinger.Term                              { return nil }
func (process) Server() catalog.Server                          { return catalog.Server{} }
func (process) Jitter(d time.Duration, _ float64) time.Duration { return d }

// Tries to break, with the race detector: the loop may end at the very instant at which somebody
// comes to stand in a line.
func TestQueue_StandsWhileTheLoopEnds_NoDataRace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		closed, loops := make(chan struct{}), sync.WaitGroup{}
		q := queue.New(queue.Config{
			Store: memcatalog.New(memcatalog.Options{}), Process: process{}, Clock: clock.System(),
			Ping: time.Second, Poll: time.Second, PollMax: time.Second, MaxWatchGap: time.Minute,
			Closed: closed, Go: loops.Go,
		})
		enter := func() *queue.Waiter {
			return q.Enter(catalog.Request{
				Session: catalog.Session{Name: "a", TS: bson.NewObjectID()}, Process: "p",
			})
		}
		first, second := enter(), enter()
		q.Stands(first, catalog.Lock{Name: "a"}, 0)
		q.Leave(first)
		loops.Go(func() {
			time.Sleep(10 * time.Second) // the loop has seen it enter, and ended
			q.Stands(second, catalog.Lock{Name: "a"}, 0)
		})
		time.Sleep(20 * time.Second)
		q.Leave(second)
		close(closed)
		loops.Wait()
	})
}

func TestMain(m *testing.M) { effort.Main(m) }
