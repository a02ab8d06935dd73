package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

// After a repair of malformed settings, a round begins within 10 s.
func TestRun_SettingsRepaired_RoundWithinTenSeconds(t *testing.T) {
	each(t, "", func(t *testing.T, w *world, kind singleton.Kind) {
		w.settings("a", e("stopped", "yes"))
		var j journal
		w.start(0).runs(kind, time.Minute, j.round)
		time.Sleep(10*time.Minute + 5*time.Second)
		repaired := time.Now()
		w.settings("a")
		time.Sleep(time.Minute)
		if all := j.all(); len(all) == 0 || all[0].at.Sub(repaired) > 10*time.Second {
			t.Errorf("rounds %v, the settings were repaired at %v", all, repaired)
		}
	})
}

// A step of the server's clock during a round does not change the interval of a loop.
func TestRun_ServersClockStepsInARound_IntervalStays(t *testing.T) {
	for name, by := range map[string]time.Duration{"back": -time.Hour, "ahead": time.Hour} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			step := w.steps()
			p := w.start(0)
			var begun []time.Duration
			p.loop(looping(time.Minute, func(context.Context, *distlock.TryGuard) error {
				begun = append(begun, time.Since(w.started).Truncate(time.Second))
				if len(begun) == 2 {
					step.Store(int64(by))
				}
				return nil
			}))
			time.Sleep(5*time.Minute + time.Second)
			synctest.Wait()
			for i, at := range begun {
				if at != time.Duration(i)*time.Minute {
					t.Fatalf("rounds began after %v", begun)
				}
			}
			if len(begun) != 6 {
				t.Errorf("rounds began after %v", begun)
			}
		})
	}
}

// If the store does not answer at the end of a round, the end is recorded soon after the store
// answers again. If the turn of the process is over, it queues again only after that.
func TestRun_EndNotAnswered_IsRecordedSoon(t *testing.T) {
	for name, applied := range map[string]bool{"applied": true, "not applied": false} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			p := w.start(0)
			l := looping(time.Hour, func(context.Context, *distlock.TryGuard) error {
				p.store.lose(0, 2, applied)
				return errors.New("boom")
			})
			l.Turn = 1
			p.loop(l)
			time.Sleep(time.Minute)
			s := w.status()
			if s.State != singleton.Failed || s.Rounds != 1 || s.Failures != 1 || s.LastError != "boom" ||
				!s.Next.Equal(w.started.Add(time.Hour)) {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// An outage of the store is logged once.
func TestRun_StoreSilent_LoggedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log assert.Log
		p := w.startWith(0, func(cfg *distlock.Config) { cfg.Logger = zerolog.New(&log) })
		p.loop(looping(time.Minute, nothing))
		time.Sleep(2*time.Minute + time.Second)
		for episode := 1; episode <= 2; episode++ {
			p.store.Set(silent)
			time.Sleep(10 * time.Minute)
			p.store.Set(nil)
			lines := strings.Count(log.String(), "no round begins")
			assert.Equal(t, lines, episode, "%d lines after episode %d")
			time.Sleep(3 * time.Minute)
		}
	})
}

// Each day's time outside of the active window is logged once.
func TestRun_OutsideOfTheWindow_LoggedOnce(t *testing.T) {
	each(t, "", func(t *testing.T, w *world, kind singleton.Kind) { // the test begins at midnight
		var log assert.Log
		p := w.startWith(0, func(cfg *distlock.Config) { cfg.Logger = zerolog.New(&log) })
		w.settings("a", e("activeWindow", bson.D{e("start", "6:00"), e("stop", "7:00")}))
		p.runs(kind, time.Minute, nothing)
		for day := 1; day <= 2; day++ {
			time.Sleep(5 * time.Hour)
			times := strings.Count(log.String(), "rounds are stopped")
			assert.Equal(t, times, day, "logged %d times until day %d")
			time.Sleep(19 * time.Hour)
		}
	})
}

// BeginSlot returns when its context ends, even if the store hangs.
func TestBeginSlot_StoreHangs_ReturnsWithItsContext(t *testing.T) {
	for hangs := range 3 {
		inBubbleSub(t, fmt.Sprint(hangs), func(t *testing.T, w *world) {
			p := w.start(0)
			guard, err := p.Lock("a").Lock(t.Context())
			assert.Must(t, err)
			defer func() { _ = guard.Release() }()
			n := 0
			p.store.Set(func(ctx context.Context, _ string, apply func() error) error {
				if n++; n <= hangs {
					return apply()
				}
				<-ctx.Done()
				return ctx.Err()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			begun := time.Now()
			_, err = singleton.BeginSlot(ctx, p.Manager, guard, p.store, hourly)
			wantErr(t, err, context.DeadlineExceeded)
			if took := time.Since(begun); took > 100*time.Millisecond {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A process is stopped during an outage of the store. It still tries to record the end of its
// round, and stops within 20 s.
func TestRun_ShutdownWhileStoreFails_EndIsRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		fails   int
		applied bool
		state   singleton.State
	}{
		"twice": {2, false, singleton.Done}, "applied": {1, true, singleton.Done},
		"for good": {99, false, singleton.Running},
	} {
		each(t, name, func(t *testing.T, w *world, kind singleton.Kind) {
			a := w.start(0)
			fail := func() { a.stop(); a.store.lose(0, c.fails, c.applied) }
			if kind == singleton.KindLoop {
				l := looping(time.Hour, func(context.Context, *distlock.TryGuard) error { fail(); return nil })
				l.Turn = 1
				a.loop(l)
			} else {
				s := slotting(time.Hour, func(context.Context, singleton.Slot) error { fail(); return nil })
				s.Rerun = true
				a.slots(s)
				time.Sleep(time.Hour)
			}
			stopped := time.Now()
			a.ended.Wait()
			if took := time.Since(stopped); took > 20*time.Second {
				t.Errorf("the shutdown took %v", took)
			}
			if s := w.status(); s.State != c.state {
				t.Errorf("status %+v", s)
			}
			assert.NoErr(t, assert.Err(a.Lock("a").TryLock(t.Context())), "the lock is not free")
		})
	}
}
