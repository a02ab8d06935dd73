package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// A teller is a process with a history.
type teller struct {
	*proc
	log *history.Log
}

// telling starts a process that writes a history.
func (w *world) telling(o history.Options, change func(*distlock.Config)) *teller {
	w.t.Helper()
	var told teller
	told.proc = w.start(func(cfg *distlock.Config) {
		if change != nil {
			change(cfg)
		}
		told.log = logOf(w.t, *cfg, o)
		cfg.Observer = told.log
	})
	w.t.Cleanup(func() { _ = told.log.Close(context.Background()) })
	return &told
}

// own is telling with the defaults, and all writes everything.
func (w *world) own() *teller { return w.telling(history.Options{}, nil) }

func (w *world) all() *teller { return w.telling(history.Options{All: true}, nil) }

func logOf(t *testing.T, cfg distlock.Config, o history.Options) *history.Log {
	t.Helper()
	return assert.Value(history.New(t.Context(), cfg, o))(t)
}

// Close closes the Manager and the history.
func (p *teller) Close(ctx context.Context) error {
	return errors.Join(p.proc.Close(ctx), p.log.Close(ctx))
}

// past returns what the store tells of a lock, oldest first.
func (p *teller) past(name string) []history.Entry {
	p.w.t.Helper()
	var entries []history.Entry
	for e, err := range p.log.Read(p.w.t.Context(), history.Query{Name: name}) {
		assert.Must(p.w.t, err)
		entries = append(entries, e)
	}
	slices.Reverse(entries)
	return entries
}

// wantPast compares the kinds, when the next ping has written them.
func (p *teller) wantPast(name string, want ...string) []history.Entry {
	p.w.t.Helper()
	time.Sleep(pingTime + pingTime/5)
	synctest.Wait()
	entries := p.past(name)
	var got []string
	for _, e := range entries {
		got = append(got, e.Kind)
	}
	if !slices.Equal(got, want) {
		p.w.t.Fatalf("history of %s is %q, want %q", name, got, want)
	}
	return entries
}

// What happened is told once, with what is known of it, and when it happened, not when it was
// written.
func TestHistory_AcquiredAndReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.own()
		begun := time.Now()
		g := p.mustTry("a", distlock.Why("nightly"), distlock.Shared())
		time.Sleep(10 * time.Second)
		assert.Must(t, g.Release())
		past := p.wantPast("a", "acquired", "released")
		for i, e := range past {
			if e.Name != "a" || e.Process != p.Process() || e.Session != g.Session() ||
				e.Fence != g.Fence() ||
				e.Why != "nightly" || e.Mode != "shared" || e.Leads ||
				e.Cause+e.Previous+e.Rule+e.Evidence != "" {
				t.Errorf("%+v", e)
			}
			if at := e.At.Sub(begun).Round(time.Second); at != time.Duration(i)*10*time.Second {
				t.Errorf("%s after %v", e.Kind, at)
			}
		}
		assert.Equal(t, past[1].Held, 10*time.Second, "held for %v, want %v")
		assert.Equal(t, p.log.Stats(), (history.Stats{Written: 2}), "counts %+v, want %+v")
	})
}

func TestHistory_GrantedInLine(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, p := w.own(), w.own()
		g := holder.mustTry("a")
		time.AfterFunc(10*time.Second, func() { _ = g.Release() })
		next := assert.Value(p.Lock("a").Lock(t.Context()))(t)
		time.Sleep(2 * pingTime)
		past := p.past("a") // the release and the grant are one command: either may be told first
		granted := slices.IndexFunc(past, func(e history.Entry) bool { return e.Kind == "granted" })
		if len(past) != 3 || granted < 1 {
			t.Fatalf("%+v", past)
		}
		if e := past[granted]; e.Waited < 10*time.Second || e.Fence != next.Fence() ||
			e.Process != p.Process() {
			t.Errorf("%+v", e)
		}
		_ = next.Release()
	})
}

// A takeover is told by who took it, with the evidence, and by who lost it, when it comes back,
// with the cause.
func TestHistory_TakenOver_ToldOnBothSides(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		old, p := w.own(), w.own()
		g := old.mustTry("a")
		victim := old.Process()
		old.wantPast("a", "acquired")
		old.kill()
		var mine *distlock.TryGuard
		for mine == nil {
			time.Sleep(pingTime)
			mine, _ = p.try("a")
		}
		past := p.wantPast("a", "acquired", "taken over")
		if e := past[1]; e.Previous != victim || e.Rule == "" || !strings.Contains(e.Evidence, e.Rule) ||
			e.Process != p.Process() || e.Fence != mine.Fence() {
			t.Errorf("%+v", e)
		}
		old.store.Set(nil)
		past = old.wantPast("a", "acquired", "lost", "taken over")
		if e := past[1]; e.Process != victim || !strings.Contains(e.Cause, "no ping") ||
			e.Held < holdTime ||
			!e.At.Before(past[2].At) || e.Session != g.Session() {
			t.Errorf("%+v", e)
		}
		_ = g.Release() // it tells when the work ended
		past = old.wantPast("a", "acquired", "lost", "taken over", "released")
		if past[3].Cause == "" {
			t.Errorf("%+v", past[3])
		}
		_ = mine.Release()
	})
}

// A takeover is told, with its end, however short the new holder has the lock.
func TestHistory_TakenOverForAMoment_Told(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		old, p := w.own(), w.own()
		old.mustTry("a")
		old.kill()
		for {
			time.Sleep(pingTime)
			if mine, err := p.try("a"); err == nil {
				_ = mine.Release()
				break
			}
		}
		p.wantPast("a", "taken over", "released")
	})
}

func TestHistory_LeaseRanOut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.own()
		p.mustTry("a", distlock.Lease(time.Minute))
		time.Sleep(time.Minute)
		p.wantPast("a", "acquired", "lease ran out")
	})
}

// A break is told by who broke the lock, and why: the process of the Manager, which writes it with
// its next batch, or an Inspector of its own, which writes it at once.
func TestHistory_Broken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, operator := w.own(), w.own()
		g := p.mustTry("a")
		p.wantPast("a", "acquired")
		assert.Must(t, operator.Break(t.Context(), "a", g.Fence(), "ticket 4711"))
		time.Sleep(pingTime + pingTime/5) // the holder's ping shows the loss, the next one writes it
		past := p.wantPast("a", "acquired", "broken", "lost")
		if e := past[1]; e.Process != operator.Process() || e.Previous != p.Process() ||
			e.Why != "ticket 4711" ||
			e.Fence != g.Fence() {
			t.Errorf("%+v", e)
		}

		cfg := distlock.Config{Catalog: w.mem, Host: "desk"}
		cfg.Observer = logOf(t, cfg, history.Options{})
		alone := assert.Value(distlock.NewInspector(t.Context(), cfg))(t)
		g = p.mustTry("b")
		assert.Value(alone.Break(t.Context(), "b", g.Fence(), "ticket 4712"))(t)
		past = p.past("b")
		if len(past) != 1 || past[0].Kind != "broken" || !strings.HasPrefix(past[0].Process, "desk:") ||
			past[0].Why != "ticket 4712" || past[0].Previous != p.Process() || past[0].At.After(time.Now()) {
			t.Errorf("%+v", past)
		}
	})
}

// A break that cannot be written is a break all the same.
func TestHistory_BreakNotWritten_Broken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.own()
		g := p.mustTry("a")
		store := fault.WrapKept(w.mem)
		cfg := distlock.Config{Catalog: store}
		cfg.Observer = logOf(t, cfg, history.Options{})
		alone := assert.Value(distlock.NewInspector(t.Context(), cfg))(t)
		store.Set(fault.Refusing(fault.AppendHistory))
		if _, err := alone.Break(t.Context(), "a", g.Fence(), "why not"); err != nil || w.lock("a").Held {
			t.Errorf("%v, %+v", err, w.lock("a"))
		}
	})
}

// A dead waiter is taken out of a line by the one behind it, which tells.
func TestHistory_EvictedFromALine(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		holder, dead, p := w.own(), w.own(), w.own()
		g := holder.mustTry("a")
		for _, one := range []*teller{dead, p} {
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
		past := p.wantPast("a", "acquired", "evicted")
		if e := past[1]; e.Previous != victim || e.Process != p.Process() || e.Fence != 0 ||
			e.Rule == "" || e.Evidence == "" {
			t.Errorf("%+v", e)
		}
		_ = g.Release()
	})
}

func TestHistory_ReleasedLate(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.own()
		g := p.mustTry("a")
		p.store.Set(fault.Refusing(fault.Release))
		wantErr(t, g.Release(), distlock.ErrReleaseFailed)
		synctest.Wait() // the first of the late tries, which is refused as well
		p.store.Set(nil)
		time.Sleep(2 * pingTime) // the next ping makes it due, the one after that writes the outcome
		past := p.wantPast("a", "acquired", "released", "released late")
		if past[1].Cause == "" || past[2].Session != g.Session() || past[2].Fence != g.Fence() {
			t.Errorf("%+v", past[1:])
		}
	})
}

// A change of leader is told however short the term is.
func TestHistory_Leader_AlwaysTold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.own()
		assert.Must(t, p.mustTry("a", distlock.Label("election")).Release())
		for _, e := range p.wantPast("a", "acquired", "released") {
			if !e.Leads {
				t.Errorf("%+v", e)
			}
		}
	})
}

// Locks that are held for less than a second cost no command, and leave no collection; nor do tries
// that are refused, nor pings. Acquiring and releasing costs what it costs without a history, also
// when all of it is written.
func TestHistory_Commands_Counted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, noisy := w.own(), w.all()
		for range 100 {
			g := p.mustTry("a")
			time.Sleep(900 * time.Millisecond)
			if _, err := p.try("a"); err == nil {
				t.Fatal("two have the lock")
			}
			_ = g.Release()
		}
		time.Sleep(2 * pingTime)
		for _, op := range []fault.Op{fault.AppendHistory, fault.PrepareHistory, fault.PruneHistory} {
			assert.Equal(t, p.store.Count(op), 0, "%d commands for the history of short locks, want %d")
		}
		assert.Equal(t, len(w.mem.Documents(catalog.HistoryCollection)), 0, "%d entries, want %d")
		_ = noisy.mustTry("b").Release() // the first of a name costs one more
		before := noisy.store.Total()
		for range 10 {
			_ = noisy.mustTry("b").Release()
		}
		assert.Equal(t, noisy.store.Total()-before, 20,
			"%d commands for 10 acquisitions and releases, want %d")
		if noisy.wantPast("c"); noisy.store.Count(fault.AppendHistory) != 1 ||
			len(noisy.past("b")) != 22 {
			t.Errorf("%d batches, %d entries", noisy.store.Count(fault.AppendHistory), len(noisy.past("b")))
		}
	})
}

// A crash loses what happened since the last ping, and no more; the next process reads the rest.
func TestHistory_Crash_LosesTheLastIntervalOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.all()
		for n := range 20 {
			_ = p.mustTry(fmt.Sprintf("a%02d", n)).Release()
			time.Sleep(pingTime / 4)
		}
		_ = p.mustTry("last").Release()
		killed := time.Now()
		p.kill()
		next := w.own()
		past := next.past("")
		last := past[len(past)-1]
		if lost := killed.Sub(last.At); len(next.past("last")) > 0 || lost > pingTime*11/10+pingTime/4 {
			t.Errorf("%d entries, the last %v before the crash", len(past), lost)
		}
	})
}

// Close writes what is left, the releases that it makes among it.
func TestHistory_Close_WritesTheRest(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, reader := w.own(), w.own()
		p.mustTry("a")
		time.Sleep(2 * time.Second)
		assert.Must(t, p.Close(t.Context()))
		if past := reader.past("a"); len(past) != 2 || past[1].Kind != "released" || past[1].Cause == "" {
			t.Errorf("%+v", past)
		}
	})
}
