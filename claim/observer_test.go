package claim

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/distlock"
	"mongodlm/internal/metrics"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/locktest"
	"mongodlm/internal/test/metricstest"
)

type observer struct {
	event  func(distlock.Event)
	sample func(metrics.Sample)
}

func (o observer) Observe(e distlock.Event) { o.event(e) }

func (o observer) Sampled(all ...metrics.Sample) {
	for _, s := range all {
		o.sample(s)
	}
}

func (observer) Asks(func(context.Context) []metrics.Sample) (stop func()) { return func() {} }

// A handler that returns in time does not time out, even if the Observer is slow.
func TestHandler_SlowObserver_ReturnedInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		slow := observer{func(distlock.Event) {}, func(s metrics.Sample) {
			if s.Metric == metrics.HandlerTime {
				time.Sleep(time.Second)
			}
		}}
		w.tune = func(c *distlock.Config) { c.Observer = slow }
		p := w.start(Config{Timeout: 10 * time.Second, MaxAttempts: 1})
		p.run(t, func(context.Context, *Row[item]) error {
			time.Sleep(9900 * time.Millisecond)
			return errors.New("broken")
		})
		w.settle(time.Minute, are(Counts{Dead: 1}))
		assert.Equal(t, w.row(0).Mark.Error, "broken", "the last error is %q, want %q")
	})
}

// Row.Err does not hold the mutex of the row while it calls the Observer.
func TestRowErr_DetectsTheLoss_ObserverMayCallTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		c := locktest.WrongClock(0)
		var row atomic.Pointer[Row[item]]
		lost := make(chan bool, 8)
		o := observer{func(e distlock.Event) {
			r := row.Load()
			if e.Kind != distlock.EventLost || r == nil {
				return
			}
			free := false
			for n := 0; n < 1000 && !free; n++ {
				if free = r.c.mu.TryLock(); free {
					r.c.mu.Unlock()
				}
				runtime.Gosched()
			}
			lost <- free
		}, func(metrics.Sample) {}}
		w.tune = func(c *distlock.Config) { c.Observer = o }
		w.startAt(w.World, c, "", Config{}).run(t, func(_ context.Context, r *Row[item]) error {
			row.Store(r)
			c.Step(time.Hour)
			wantErr(t, r.Err(), distlock.ErrLockLost)
			return nil
		})
		if free := <-lost; !free {
			t.Error("the row is locked while the Observer runs")
		}
	})
}

// If New fails, the Observer does not ask the queue for metrics.
func TestNew_Fails_ObserverAsksNothing(t *testing.T) {
	t.Parallel()
	client := assert.Value(mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1")))(t)
	assert.Must(t, client.Disconnect(t.Context())) // each command fails
	locktest.InBubbleAlone(t, func(t *testing.T, w *locktest.World) {
		k := &metricstest.Kept{}
		m := w.Start(func(c *distlock.Config) { c.Observer = k })
		_, err := New[item](t.Context(), m.Manager, client.Database("db").Collection("rows"), Config{})
		wantErr(t, err, mongo.ErrClientDisconnected)
		assert.Equal(t, k.Ask(t.Context()), 0, "%d samples, want %d")
	})
}

// After Close, the metrics show no stuck handler, and the row of a lost slot counts as lost.
func TestClose_HandlerWasStuck_MetricIsZero(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.add(0, 1)
		k := &metricstest.Kept{}
		w.tune = func(c *distlock.Config) { c.Observer = k }
		p := w.start(Config{})
		p.run(t, func(context.Context, *Row[item]) error {
			time.Sleep(time.Hour)
			return nil
		})
		time.Sleep(time.Minute)
		p.cut()
		time.Sleep(40 * time.Minute)
		stuck, _ := k.Of(metrics.Stuck, "db.rows:queue")
		assert.Equal(t, stuck, 1, "%v handlers are stuck, want %v")
		assert.NoErr(t, p.Close(t.Context()))
		stuck, _ = k.Of(metrics.Stuck, "db.rows:queue")
		assert.Equal(t, stuck, 0, "%v handlers are stuck, want %v")
		lost, _ := k.Of(metrics.Attempts, "lost", "db.rows:queue")
		assert.Equal(t, lost, 1, "%v attempts are lost, want %v")
	})
}
