package distlock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// A history that cannot be written, or does not answer, holds up no acquisition, no release, no
// ping and no Close, and is written when it can be.
func TestHistory_StoreHangs_LocksDoNot(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.own()
		p.store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
			switch call.Op {
			case fault.AppendHistory, fault.PrepareHistory, fault.PruneHistory:
				<-ctx.Done()
				return fault.Lost(call.Op)
			}
			return apply()
		})
		steady := p.mustTry("steady")
		for range 60 {
			begun := time.Now()
			g := p.mustTry("a")
			if took := time.Since(begun); took > 0 {
				t.Fatalf("an acquisition took %v", took)
			}
			time.Sleep(pingTime)
			begun = time.Now()
			if err := g.Release(); err != nil || time.Since(begun) > 0 {
				t.Fatalf("a release took %v: %v", time.Since(begun), err)
			}
		}
		assert.NoErr(t, steady.Err())
		if s := p.log.Stats(); s.Failures < 20 || s.Written+s.Missed != 0 {
			t.Errorf("counts %+v", s)
		}
		p.store.Set(nil)
		time.Sleep(2 * pingTime)
		assert.Equal(t, len(p.past("a")), 120, "%d entries of 60 acquisitions, want %d")
	})
}

// Without one, nothing is written whatever happens.
func TestHistory_Off_NothingWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		time.Sleep(2 * pingTime)
		assert.Must(t, p.Break(t.Context(), "a", g.Fence(), "stuck"))
		alone := assert.Value(distlock.NewInspector(t.Context(), distlock.Config{Catalog: p.store}))(t)
		g = p.mustTry("b")
		assert.Value(alone.Break(t.Context(), "b", g.Fence(), "stuck"))(t)
		time.Sleep(2 * pingTime)
		assert.Equal(t, p.store.Count(fault.PrepareHistory)+p.store.Count(fault.AppendHistory), 0,
			"%d commands, want %d")
	})
}

// A history costs no goroutine while it writes nothing.
func TestHistory_NoGoroutine(t *testing.T) {
	count := func(start func(w *world) *proc) (n int) {
		inBubbleAlone(t, func(t *testing.T, w *world) {
			start(w).mustTry("a")
			time.Sleep(3 * pingTime)
			synctest.Wait()
			n = goroutines()
		})
		return n
	}
	with := count(func(w *world) *proc { return w.all().proc })
	if without := count(func(w *world) *proc { return w.start(nil) }); with != without || without < 3 {
		t.Errorf("%d goroutines, %d without a history", with, without)
	}
}

// A guard that is dropped is a mistake in a program: it is told. Not in a bubble: the garbage
// collector does not know virtual time.
func TestHistory_Dropped(t *testing.T) {
	t.Parallel()
	cfg := distlock.Config{
		Catalog: memcatalog.New(memcatalog.Options{}), Ping: 5 * time.Millisecond,
	}
	past := logOf(t, cfg, history.Options{})
	cfg.Observer = past
	m := assert.Value(distlock.New(t.Context(), cfg))(t)
	defer func() { _ = errors.Join(m.Close(context.Background()), past.Close(context.Background())) }()
	func() {
		assert.Value(m.Lock("a").TryLock(t.Context(), distlock.Why("forgotten")))(t)
	}()
	for { // each collection is a chance; the test's own time limit bounds it
		runtime.GC()
		for e, err := range past.Read(t.Context(), history.Query{Name: "a"}) {
			assert.Must(t, err)
			if e.Kind == "dropped" && e.Why == "forgotten" {
				return
			}
		}
	}
}

// Questions that make no sense are refused; an age is by the server's clock.
func TestHistory_Query(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.all()
		for _, name := range []string{"a", "b"} {
			_ = p.mustTry(name).Release()
			time.Sleep(time.Hour)
		}
		read := func(q history.Query) (names string, err error) {
			for e, bad := range p.log.Read(t.Context(), q) {
				names, err = names+e.Name, bad
			}
			return names, err
		}
		for _, c := range []struct {
			q    history.Query
			want string
		}{
			{history.Query{}, "bbaa"},
			{history.Query{Since: 90 * time.Minute}, "bb"},
			{history.Query{Since: 90 * time.Minute, Name: "a"}, ""},
			{history.Query{Limit: 3}, "bba"},
		} {
			if got, err := read(c.q); got != c.want || err != nil {
				t.Errorf("%+v: %q, %v", c.q, got, err)
			}
		}
		for _, q := range []history.Query{{Since: -1}, {Limit: -1}} {
			wantErr(t, assert.Err(read(q)), distlock.ErrBadOption)
		}
		wantErr(t, assert.Err(read(history.Query{Name: "a\x00"})), distlock.ErrBadName)
	})
}

// What contradicts is refused at once, with the field's name, beside what is wrong with the Config.
func TestHistory_Options(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	mem := memcatalog.New(memcatalog.Options{})
	for name, c := range map[string]struct {
		cfg      distlock.Config
		in       history.Options
		problems []string
	}{
		"default": {distlock.Config{Catalog: mem}, history.Options{}, nil},
		"bounds": {distlock.Config{Catalog: mem},
			history.Options{All: true, Keep: time.Minute, Most: 10_000_000}, nil},
		"too short": {distlock.Config{Catalog: mem}, history.Options{Keep: time.Second},
			[]string{"Keep is 1s"}},
		"too much": {distlock.Config{}, history.Options{Keep: 4000 * day, Most: 99},
			[]string{"Keep", "Most is 99", "URI"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := history.New(t.Context(), c.cfg, c.in)
			if len(c.problems) == 0 && err != nil {
				t.Error(err)
			}
			for _, problem := range c.problems {
				if wantErr(t, err, distlock.ErrConfig); err != nil && !strings.Contains(err.Error(), problem) {
					t.Errorf("%s is not in %v", problem, err)
				}
			}
		})
	}
}

// A nil context ends in an error, not in a panic, and a Close that had none did nothing.
func TestHistory_NilContext_IsRefused(t *testing.T) {
	t.Parallel()
	var none context.Context
	cfg := distlock.Config{Catalog: memcatalog.New(memcatalog.Options{})}
	log := logOf(t, cfg, history.Options{})
	wantErr(t, assert.Err(history.New(none, cfg, history.Options{})), distlock.ErrBadOption)
	for _, err := range log.Read(none, history.Query{}) {
		wantErr(t, err, distlock.ErrBadOption)
	}
	wantErr(t, log.Close(none), distlock.ErrBadOption)
	assert.NoErr(t, log.Close(t.Context()))
}

// A Close that could not release one lock writes the rest of the history all the same; where
// nothing can be written it says so.
func TestHistory_CloseThatFails_WritesOrSaysSo(t *testing.T) {
	for name, dead := range map[string]bool{"one release": false, "everything": true} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			var log assert.Log
			p := w.telling(history.Options{}, func(cfg *distlock.Config) { cfg.Logger = zerolog.New(&log) })
			other := w.own()
			g := p.mustTry("a")
			p.mustTry("b")
			time.Sleep(2 * time.Second)
			_ = g.Release()
			p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				if dead || call.Op == fault.Release {
					return fault.Refused(call.Op)
				}
				return apply()
			})
			begun := time.Now()
			if err := p.Close(t.Context()); err == nil {
				t.Error("closed although b is held")
			}
			said := strings.Contains(log.String(), "the last of the history was not written")
			if n := len(other.past("a")); n != map[bool]int{false: 2, true: 0}[dead] || said != dead {
				t.Errorf("%d entries, said that they are lost: %t", n, said)
			}
			if took := time.Since(begun); took > 2*commandTimeout {
				t.Errorf("Close took %v", took)
			}
		})
	}
}
