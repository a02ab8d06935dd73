package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

type rounds struct {
	mu sync.Mutex // guards the field at
	at []time.Time
}

func (r *rounds) note(context.Context, *distlock.TryGuard) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Now())
	return nil
}

func (r *rounds) all() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.at)
}

// After a repair of malformed settings, a round begins within 10 s.
func TestRun_SettingsRepaired_RoundWithinTenSeconds(t *testing.T) {
	each(t, "", func(t *testing.T, w *world, kind singleton.Kind) {
		w.settings("a", e("stopped", "yes"))
		var r rounds
		w.start(0).runs(kind, time.Minute, r.note)
		time.Sleep(10*time.Minute + 5*time.Second)
		repaired := time.Now()
		w.settings("a")
		time.Sleep(time.Minute)
		if at := r.all(); len(at) == 0 || at[0].Sub(repaired) > 10*time.Second {
			t.Errorf("rounds at %v, the settings were repaired at %v", at, repaired)
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
// answers again.
func TestRun_EndNotAnswered_IsRecordedSoon(t *testing.T) {
	for name, applied := range map[string]bool{"applied": true, "not applied": false} {
		inBubbleSub(t, name, func(t *testing.T, w *world) {
			p := w.start(0)
			p.loop(looping(time.Hour, func(context.Context, *distlock.TryGuard) error {
				p.store.lose(0, 2, applied)
				return errors.New("boom")
			}))
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
		var r rounds
		p.loop(looping(time.Minute, r.note))
		time.Sleep(2*time.Minute + time.Second)
		for episode := 1; episode <= 2; episode++ {
			p.store.set(silent)
			time.Sleep(10 * time.Minute)
			p.store.set(nil)
			lines := strings.Count(log.String(), "no round begins")
			assert.Equal(t, lines, episode, "%d lines after episode %d")
			time.Sleep(3 * time.Minute)
		}
	})
}

// A loop does not change the record of a schedule with the same name, even if a command fails.
func TestRun_NameOfASchedule_RecordUntouched(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		doc := bson.D{e("_id", "a"), e("fence", int64(0)), e("kind", "slots"),
			e("seen", time.Now())}
		assert.Must(t, w.store.Put(singleton.RecordsCollection, doc))
		p := w.start(0)
		p.store.lose(0, 1, false)
		stop := func(context.Context, *distlock.TryGuard) error { p.stop(); return nil }
		err := <-p.runs(singleton.KindLoop, time.Second, stop)
		if err == nil || w.status().Kind != singleton.KindSlots {
			t.Errorf("Run: %v, the record is now a %s's", err, w.status().Kind)
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
			p.store.set(func(ctx context.Context, apply func() error) error {
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
			a.wantShutdown(t)
			if s := w.status(); s.State != c.state {
				t.Errorf("status %+v", s)
			}
			assert.NoErr(t, assert.Err(a.Lock("a").TryLock(t.Context())), "the lock is not free")
		})
	}
}

func (p *process) wantShutdown(t *testing.T) {
	t.Helper()
	begun := time.Now()
	p.ended.Wait()
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the shutdown took %v", took)
	}
}

// When the turn of a process is over, it records the end of its last round before it queues again.
func TestRun_TurnOver_EndIsRecordedFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(0)
		lose := sync.OnceFunc(func() { p.store.lose(0, 1, false) })
		l := looping(time.Hour, func(context.Context, *distlock.TryGuard) error { lose(); return nil })
		l.Turn = 1
		p.loop(l)
		time.Sleep(time.Minute)
		if s := w.status(); s.State != singleton.Done || s.Rounds != 1 {
			t.Errorf("status %+v", s)
		}
	})
}
