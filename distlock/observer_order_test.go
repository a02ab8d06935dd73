package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/fault"
)

// interruptedClock calls a function before one of its readings, to simulate an event between two
// steps of a call.
type interruptedClock struct {
	steppedClock
	left atomic.Int64 // readings before the function is called; 0 for never
	then func()
}

func (c *interruptedClock) Now() clock.Reading {
	if c.left.Load() > 0 && c.left.Add(-1) == 0 {
		c.then()
	}
	return c.steppedClock.Now()
}

// wantLives checks the order of each session's events: the acquisition first, then at most one
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
			t.Errorf("one session is told as %q", life)
		}
	}
}

// A guard is reported as lost or released only after its acquisition is reported, even if the
// Manager is closed or the guard expires between two steps of the acquisition.
func TestObserver_BetweenAnyTwoSteps_TellsALifeInOrder(t *testing.T) {
	for name, disturb := range map[string]func(p *proc, c *interruptedClock){
		"closed": func(p *proc, _ *interruptedClock) {
			go func() { _ = p.Close(context.Background()) }() // the end of the test waits for Close
			for range 300 {
				runtime.Gosched()
			}
		},
		"lease over": func(_ *proc, c *interruptedClock) { c.step(time.Minute) },
		"term over":  func(_ *proc, c *interruptedClock) { c.step(takeoverTime) },
	} {
		for step := int64(1); step <= 24; step++ {
			runInBubble(t, fmt.Sprint(name, " ", step), func(t *testing.T, w *world) {
				c, d := &interruptedClock{steppedClock: steppedClock{Clock: clock.System()}}, &diary{}
				p := w.startBy(c, func(cfg *distlock.Config) { cfg.Observer = d })
				c.then = func() { disturb(p, c) }
				c.left.Store(step)
				g, err := p.try("a", distlock.Lease(time.Minute))
				c.left.Store(0)
				if err == nil {
					_ = g.Release()
				}
				synctest.Wait()
				_ = p.Close(context.Background())
				events := d.take()
				wantLives(t, events)
				told := slices.ContainsFunc(events,
					func(e distlock.Event) bool { return e.Kind == distlock.EventAcquired })
				if told != (err == nil) {
					t.Errorf("told as acquired: %t, and the call says %v", told, err)
				}
			})
		}
	}
}

// A release that the loss of a guard triggers is reported after the loss, although a slow logger
// delays the reports of several losses.
func TestObserver_LossOfSeveral_ToldBeforeTheirReleases(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		slow := writerFunc(func(line []byte) {
			for range 3000 {
				if !strings.Contains(string(line), `"lost"`) {
					return
				}
				runtime.Gosched()
			}
		})
		c, d := &steppedClock{Clock: clock.System()}, &diary{}
		p := w.startBy(c, func(cfg *distlock.Config) { cfg.Logger, cfg.Observer = zerolog.New(slow), d })
		for i := range 5 {
			g := p.mustTry(fmt.Sprint("lock", i))
			context.AfterFunc(g.Context(), func() { _ = g.Release() })
		}
		c.step(takeoverTime)
		time.Sleep(pingTime)
		synctest.Wait()
		events := slices.DeleteFunc(d.take(), func(e distlock.Event) bool {
			return e.Kind == distlock.EventReleasedLate // the background releases it now or later
		})
		if wantLives(t, events); len(events) != 15 {
			t.Errorf("%d events, want 15", len(events))
		}
	})
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

var _ io.Writer = writerFunc(nil)

// If a holder releases the lock just before its eviction, the next acquisition reports no takeover
// and no previous holder.
func TestObserver_HolderLeavesBeforeTheOvertaking_NobodyIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		old := w.start(nil)
		p, d := w.observed(nil)
		g := old.mustTry("a")
		old.kill()
		p.store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Evict {
				if _, err := catalogtest.On(w.mem).Leave(ctx,
					catalog.Session{Name: "a", TS: g.Session()}); err != nil {
					t.Error(err)
				}
			}
			return apply()
		})
		for range 40 {
			time.Sleep(pingTime)
			if mine, err := p.try("a"); err == nil {
				defer func() { _ = mine.Release() }()
				break
			}
		}
		events := slices.DeleteFunc(d.take(),
			func(e distlock.Event) bool { return e.Kind != distlock.EventAcquired })
		if len(events) != 1 || events[0].Previous+events[0].Rule+events[0].Evidence != "" {
			t.Errorf("acquired: %+v", events)
		}
	})
}

// If the reply to an enter is lost and the dead holder is evicted meanwhile, the acquisition is a
// takeover with the evidence in the document.
func TestObserver_DeadHolderEvictedBeforeTheLineWasKnown_IsATakeover(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder := w.start(nil)
		p, d := w.observed(nil)
		g := holder.mustTry("a")
		var lost atomic.Bool
		p.store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
			err := apply()
			if call.Op != fault.Enter || err != nil || lost.Swap(true) {
				return err
			}
			dead := catalog.Holder{Session: catalog.Session{Name: "a", TS: g.Session()},
				Process: g.Process()}
			_, err = catalogtest.On(w.mem).Evict(ctx, dead, "rule watch: it is dead")
			return errors.Join(catalog.ErrUnknownOutcome, err)
		})
		mine := assert.Value(p.Lock("a").Lock(t.Context()))(t)
		e := wantEvents(t, d, "taken over")[0]
		if e.Rule != "watch" || e.Evidence != "rule watch: it is dead" ||
			mine.TakeoverEvidence() != e.Evidence ||
			e.Fence != w.lock("a").Fence {
			t.Errorf("%+v", e)
		}
		_ = mine.Release()
	})
}

// LockAll reports the outcome of each requested name like Lock, even of a name for which no time is
// left, or which its caller already holds.
func TestObserver_LockAll_TellsTheNameThatFailed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, d := w.observed(nil)
		g := p.mustTry("b")
		d.take()
		assert.MustBe(t, assert.Err(p.LockAll(g.Context(), []string{"a", "b"})), distlock.ErrDeadlock)
		if e := wantEvents(t, d, "gave up deadlock")[0]; e.Name != "b" {
			t.Errorf("%+v", e)
		}
		_ = g.Release()
		d.take()
		_ = p.mustTry("a").Release() // the fence of a now needs no extra command
		d.take()
		w.start(nil).mustTry("b")
		_, err := p.LockAll(t.Context(), []string{"a", "b"}, distlock.WaitAtMost(time.Second))
		wantErr(t, err, distlock.ErrHeld)
		synctest.Wait()
		events := wantEvents(t, d, "acquired", "gave up held", "released")
		if e := events[1]; e.Name != "b" || e.Waited != time.Second {
			t.Errorf("%+v", e)
		}
	})
}

// Pings are reported as Stats counts them, including a ping that finds the process condemned.
func TestObserver_PingsOfACondemnedProcess_AreThoseOfStats(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var good, bad atomic.Int64
		old := w.start(func(cfg *distlock.Config) {
			cfg.Observer = observerFunc(func(e distlock.Event) {
				switch e.Kind {
				case distlock.EventPing:
					good.Add(1)
				case distlock.EventPingFailed:
					bad.Add(1)
				}
			})
		})
		p := w.start(nil)
		old.mustTry("a")
		old.kill()
		for mine := (*distlock.TryGuard)(nil); mine == nil; mine, _ = p.try("a") {
			time.Sleep(pingTime)
		}
		old.store.Set(nil)
		time.Sleep(2 * pingTime)
		synctest.Wait()
		if s := old.Stats(); s.Processes != 1 || s.Pings != good.Load() || s.Failures != bad.Load() {
			t.Errorf("%d pings and %d failures are told; Stats: %+v", good.Load(), bad.Load(), s)
		}
	})
}
