package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/fault"
)

// A diary keeps the events of one process, except acknowledged pings.
type diary struct {
	mu     sync.Mutex // guards events
	events []distlock.Event
}

func (d *diary) Observe(e distlock.Event) {
	if e.Kind == distlock.EventPing {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

func (d *diary) take() []distlock.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	events := d.events
	d.events = nil
	return events
}

func (w *world) observed(change func(*distlock.Config)) (*proc, *diary) {
	d := &diary{}
	return w.start(func(cfg *distlock.Config) {
		cfg.Observer = d
		if change != nil {
			change(cfg)
		}
	}), d
}

// wantEvents compares the kind and the cause of each event with a text such as "lost no ping".
func wantEvents(t *testing.T, d *diary, want ...string) []distlock.Event {
	t.Helper()
	events := d.take()
	var got []string
	for _, e := range events {
		got = append(got, strings.TrimSpace(e.Kind.String()+" "+e.Cause()))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("events are %q, want %q", got, want)
	}
	return events
}

// The event of an acquisition contains the data of its guard. The event of a release also contains
// the time for which the lock was held.
func TestObserver_AcquireRelease_TellsBoth(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, d := w.observed(nil)
		g := p.MustTry("a", distlock.Why("nightly"), distlock.Shared())
		e := wantEvents(t, d, "acquired")[0]
		if e.Name != "a" || e.Why != "nightly" || e.Mode != "shared" || e.Process != p.Process() ||
			e.Session != g.Session() || e.Fence != g.Fence() || e.At.IsZero() || e.Rule+e.Previous != "" {
			t.Errorf("acquired: %+v", e)
		}
		time.Sleep(time.Minute)
		assert.Must(t, g.Release())
		if e := wantEvents(t, d, "released")[0]; e.Held != time.Minute || e.Session != g.Session() ||
			e.Err != nil {
			t.Errorf("released: %+v", e)
		}
	})
}

// A refused TryLock, a wait that ends without the lock, and a grant are different events. The
// waiting time counts from the start of the call.
func TestObserver_Waiting_TellsTheOutcomeAndTheWait(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, next := w.start(nil), &diary{}
		p := w.start(func(cfg *distlock.Config) { cfg.Observer = next })
		g := holder.MustTry("a")
		assert.MustBe(t, assert.Err(p.Try("a")), distlock.ErrHeld)
		wantEvents(t, next, "refused held")
		_, err := p.Lock("a").Lock(t.Context(), distlock.WaitAtMost(time.Minute))
		wantErr(t, err, distlock.ErrHeld)
		if e := wantEvents(t, next, "gave up held")[0]; e.Waited < time.Minute ||
			e.Waited > time.Minute+slack {
			t.Errorf("gave up after %v", e.Waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Lock("a").Lock(ctx); err == nil {
			t.Fatal("two have the lock")
		}
		wantEvents(t, next, "gave up canceled")
		time.AfterFunc(10*time.Second, func() { _ = g.Release() })
		mine := assert.Value(p.Lock("a").Lock(t.Context()))(t)
		if e := wantEvents(t, next, "granted")[0]; e.Waited < 10*time.Second || e.Fence != mine.Fence() {
			t.Errorf("granted: %+v", e)
		}
		_ = mine.Release()
	})
}

// After a takeover, the events of the contender name the previous holder and the rule. The events
// of the previous holder report the loss and its cause.
func TestObserver_Takeover_TellsOfItOnBothSides(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		old, oldDiary := w.observed(nil)
		p, d := w.observed(nil)
		g := old.MustTry("a")
		process := old.Process()
		oldDiary.take()
		old.kill()
		p.until("a", 30*time.Second, 20*time.Minute)
		events := d.take()
		for len(events) > 0 && events[0].Kind == distlock.EventRefused {
			events = events[1:]
		}
		events = slices.DeleteFunc(events, func(e distlock.Event) bool {
			return e.Kind == distlock.EventEvicted
		})
		if len(events) != 2 || events[0].Kind != distlock.EventCondemned ||
			events[1].Kind != distlock.EventTakenOver {
			t.Fatalf("the contender reports %+v", events)
		}
		for _, e := range events {
			if e.Previous != process || e.Rule == "" || !strings.Contains(e.Evidence, e.Rule) {
				t.Errorf("%v: previous %q, rule %q, evidence %q", e.Kind, e.Previous, e.Rule, e.Evidence)
			}
		}
		synctest.Wait()
		reported := oldDiary.take()
		lost := slices.IndexFunc(reported,
			func(e distlock.Event) bool { return e.Kind == distlock.EventLost })
		if lost < 0 || reported[lost].Cause() != "no ping" || reported[lost].Session != g.Session() ||
			reported[lost].Held < holdTime {
			t.Errorf("the old holder reports %+v", reported)
		}
		if n := slices.IndexFunc(reported,
			func(e distlock.Event) bool { return e.Kind == distlock.EventPingFailed }); n < 0 {
			t.Error("no ping failed")
		}
	})
}

// The events report why a guard was lost or released: an expired lease, a break, or an earlier
// loss.
func TestObserver_LeaseAndBreak_TellTheirCauses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, d := w.observed(nil)
		g := p.MustTry("a", distlock.Lease(time.Minute))
		time.Sleep(time.Minute)
		wantEvents(t, d, "acquired", "lost lease")
		_ = g.Release()
		wantEvents(t, d, "released lease")

		g = p.MustTry("b", distlock.Shared())
		assert.Must(t, p.Break(t.Context(), "b", g.Fence(), "stuck"))
		time.Sleep(2 * pingTime)
		events := wantEvents(t, d, "acquired", "broken", "lost taken")
		if e := events[1]; e.Why != "stuck" || e.Previous != p.Process() || e.Fence != g.Fence() ||
			e.Mode != "shared" || e.Session != g.Session() {
			t.Errorf("broken: %+v", e)
		}
	})
}

// If an Inspector without a Manager breaks a lock, the event names the host and the process id of
// the operating system.
func TestObserver_BreakWithoutAManager_NamesTheHost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g, d := w.start(nil).MustTry("a"), &diary{}
		cfg := distlock.Config{Catalog: w.Mem, Host: "alice@desk", Observer: d}
		alone := assert.Value(distlock.NewInspector(t.Context(), cfg))(t)
		assert.Value(alone.Break(t.Context(), "a", g.Fence(), "ticket 4711"))(t)
		e := wantEvents(t, d, "broken")[0]
		if want := fmt.Sprintf("alice@desk:%d", os.Getpid()); e.Process != want ||
			e.Why != "ticket 4711" {
			t.Errorf("%+v, want process %q", e, want)
		}
	})
}

// The event of the eviction of a dead waiter contains the fence 0, because a waiter has no fence.
func TestObserver_DeadWaiter_IsEvicted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g, dead := w.start(nil).MustTry("a"), w.start(nil)
		p, d := w.observed(nil)
		for _, one := range []*proc{dead, p} {
			go func() {
				if next, err := one.Lock("a").Lock(t.Context()); err == nil {
					_ = next.Release()
				}
			}()
			time.Sleep(time.Second)
		}
		victim := dead.Process()
		dead.kill()
		time.Sleep(takeoverTime + 3*pingTime)
		e := wantEvents(t, d, "evicted")[0]
		if e.Previous != victim || e.Process != p.Process() || e.Fence != 0 || e.Rule == "" ||
			e.Evidence == "" {
			t.Errorf("%+v", e)
		}
		_ = g.Release()
	})
}

// If the process completes a failed release later, it reports a further event for the same session.
func TestObserver_ReleasedLate_IsAnEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, d := w.observed(nil)
		g := p.MustTry("a")
		p.Store.Set(fault.Refusing(fault.Release))
		wantErr(t, g.Release(), distlock.ErrReleaseFailed)
		synctest.Wait() // until the first late try has failed as well
		p.Store.Set(nil)
		time.Sleep(2 * pingTime)
		events := wantEvents(t, d, "acquired", "released unavailable", "released late")
		if e := events[2]; e.Session != g.Session() || e.Fence != g.Fence() {
			t.Errorf("%+v", e)
		}
	})
}

// If an observer panics, the locks stay valid, and the other observers still get the event.
func TestObserver_Panics_LockAndOtherObserversLive(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log assert.Log
		d := &diary{}
		bad := observerFunc(func(distlock.Event) { panic(errors.New("no\nmetrics")) })
		p := w.start(func(cfg *distlock.Config) {
			cfg.Observer = distlock.Observers(nil, bad, distlock.Observers(d))
			cfg.Logger = zerolog.New(&log).Level(zerolog.ErrorLevel)
		})
		for range 3 {
			assert.Must(t, p.MustTry("a").Release())
		}
		time.Sleep(10 * pingTime)
		assert.NoErr(t, p.Err())
		if n := strings.Count(log.String(), "\n"); n != 1 ||
			!strings.Contains(log.String(), "an observer panicked") {
			t.Errorf("the log has %d lines: %s", n, log.String())
		}
		assert.Equal(t, len(d.take()), 6, "the other observer got %d events, want %d")
	})
}

type observerFunc func(distlock.Event)

func (f observerFunc) Observe(e distlock.Event) { f(e) }

type mark struct{}

// traced is an observer that records the value of the key mark from the context of each event.
type traced struct {
	diary
	marks []string
}

func (o *traced) ObserveContext(ctx context.Context, e distlock.Event) {
	if e.Kind != distlock.EventPing {
		o.marks = append(o.marks, fmt.Sprint(e.Kind, " ", ctx.Value(mark{})))
	}
}

// With each event of a guard, ObserveContext gets the context that the caller passed to the
// acquisition.
func TestContextObserver_GetsTheCallersContext(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		o := &traced{}
		p := w.start(func(cfg *distlock.Config) { cfg.Observer = o })
		ctx := context.WithValue(t.Context(), mark{}, "mine")
		g := assert.Value(p.Lock("a").TryLock(ctx))(t)
		if _, err := p.Lock("a").TryLock(ctx); err == nil {
			t.Fatal("two have the lock")
		}
		_ = g.Release()
		want := []string{"acquired mine", "refused mine", "released mine"}
		if !slices.Equal(o.marks, want) {
			t.Errorf("contexts: %q, want %q", o.marks, want)
		}
	})
}

// acquireRelease returns a function that acquires and releases a lock, and a function that closes
// the Manager.
func acquireRelease(tb testing.TB, o distlock.Observer) (run, end func()) {
	m, err := distlock.New(context.Background(), distlock.Config{
		Catalog: memcatalog.New(memcatalog.Options{}), Host: "host", Observer: o,
	})
	assert.Must(tb, err)
	return func() {
		g, err := m.Lock("a").TryLock(context.Background())
		if err == nil {
			err = g.Release()
		}
		assert.Must(tb, err)
	}, func() { _ = m.Close(context.Background()) }
}

// An observer that stores nothing causes no additional allocation. The test does not run in
// parallel, because it counts the allocations of the whole program. It uses the smallest of three
// counts, because a ping may also allocate.
func TestObserver_AllocatesNothing(t *testing.T) {
	if effort.Race {
		t.Skip("the race detector allocates")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // because a collection empties pools
	count := func(o distlock.Observer) float64 {
		run, end := acquireRelease(t, o)
		defer end()
		return min(testing.AllocsPerRun(70, run), testing.AllocsPerRun(70, run),
			testing.AllocsPerRun(70, run))
	}
	none, some := count(nil), count(observerFunc(func(distlock.Event) {}))
	assert.Equal(t, none, some, "%v allocations without an observer, %v with one")
}
