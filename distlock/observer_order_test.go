package distlock_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
)

// An interruptedClock calls a function before one of its readings. A test uses it to cause an event
// between two steps of a call. The event can be a step of the wall clock.
type interruptedClock struct {
	clock.Clock
	wall atomic.Int64 // nanoseconds that the wall clock is ahead
	left atomic.Int64 // readings before the function is called; 0 for never
	then func()
}

func (c *interruptedClock) Now() clock.Reading {
	if c.left.Load() > 0 && c.left.Add(-1) == 0 {
		c.then()
	}
	r := c.Clock.Now()
	r.Wall = r.Wall.Add(time.Duration(c.wall.Load()))
	return r
}

// wantLives checks the order of each session's events: first the acquisition, then at most one
// loss, then at most one release.
func wantLives(t *testing.T, events []distlock.Event) {
	t.Helper()
	lives := map[bson.ObjectID]string{}
	for _, e := range events {
		if !e.Session.IsZero() && e.Kind != distlock.EventReleasedLate {
			lives[e.Session] += e.Kind.String() + " "
		}
	}
	for _, life := range lives {
		if !slices.Contains([]string{"acquired ", "acquired lost ", "acquired released ",
			"acquired lost released "}, life) {
			t.Errorf("the events of one session are %q", life)
		}
	}
}

// If the Manager is closed or the guard expires between two steps of an acquisition, the observer
// still gets the events in order: first the acquisition, then the loss or the release.
func TestObserver_BetweenAnyTwoSteps_TellsALifeInOrder(t *testing.T) {
	for name, disturb := range map[string]func(p *proc, c *interruptedClock){
		"closed": func(p *proc, _ *interruptedClock) {
			go func() { _ = p.Close(context.Background()) }() // the end of the test waits for Close
			for range 300 {
				runtime.Gosched()
			}
		},
		"lease over": func(_ *proc, c *interruptedClock) { c.wall.Store(int64(time.Minute)) },
		"term over":  func(_ *proc, c *interruptedClock) { c.wall.Store(int64(takeoverTime)) },
	} {
		for step := int64(1); step <= 24; step++ {
			runInBubble(t, fmt.Sprint(name, " ", step), func(t *testing.T, w *world) {
				c, d := &interruptedClock{Clock: clock.System()}, &diary{}
				p := w.startBy(c, func(cfg *distlock.Config) { cfg.Observer = d })
				c.then = func() { disturb(p, c) }
				c.left.Store(step)
				g, err := p.Try("a", distlock.Lease(time.Minute))
				c.left.Store(0)
				if err == nil {
					_ = g.Release()
				}
				synctest.Wait()
				_ = p.Close(context.Background())
				events := d.take()
				wantLives(t, events)
				reported := slices.ContainsFunc(events,
					func(e distlock.Event) bool { return e.Kind == distlock.EventAcquired })
				if reported != (err == nil) {
					t.Errorf("reported as acquired: %t, and the call returned %v", reported, err)
				}
			})
		}
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

// If LockAll fails, the event names the lock that could not be acquired, even after a deadlock or a
// timeout.
func TestObserver_LockAll_TellsTheNameThatFailed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, d := w.observed(nil)
		g := p.MustTry("b")
		d.take()
		assert.MustBe(t, assert.Err(p.LockAll(g.Context(), []string{"a", "b"})), distlock.ErrDeadlock)
		if e := wantEvents(t, d, "gave up deadlock")[0]; e.Name != "b" {
			t.Errorf("%+v", e)
		}
		_ = g.Release()
		d.take()
		_ = p.MustTry("a").Release() // the fence of a now needs no extra command
		d.take()
		w.start(nil).MustTry("b")
		_, err := p.LockAll(t.Context(), []string{"a", "b"}, distlock.WaitAtMost(time.Second))
		wantErr(t, err, distlock.ErrHeld)
		synctest.Wait()
		events := wantEvents(t, d, "acquired", "gave up held", "released")
		if e := events[1]; e.Name != "b" || e.Waited != time.Second {
			t.Errorf("%+v", e)
		}
	})
}
