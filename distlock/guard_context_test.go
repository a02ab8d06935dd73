package distlock_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// collected returns a Manager, the diary of its events, and a function that reports whether a lock
// is held. The Manager uses the real clock, because the garbage collector does not use virtual
// time.
func collected(t *testing.T) (*distlock.Manager, *diary, func(name string) bool) {
	t.Helper()
	mem, d := memcatalog.New(memcatalog.Options{}), &diary{}
	m := assert.Value(distlock.New(t.Context(), distlock.Config{
		Catalog: mem, Ping: 5 * time.Millisecond, Observer: d,
	}))(t)
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m, d, func(name string) bool {
		l, bad := catalog.ParseLock(mem.Document(catalog.LocksCollection, name))
		return bad != nil || l.Held
	}
}

// collect runs the garbage collector until three more pings are acknowledged.
func collect(m *distlock.Manager) {
	for pings := m.Stats().Pings + 3; m.Stats().Pings < pings; {
		runtime.GC()
		runtime.Gosched()
	}
}

// If the program no longer references an unreleased guard, its context or a derived context, the
// process releases the lock, ends the context and reports an event.
func TestGuard_Dropped_IsReleased(t *testing.T) {
	t.Parallel()
	m, d, held := collected(t)
	none := func() {}
	var done <-chan struct{}
	type keep func(g *distlock.TryGuard) (context.Context, context.CancelFunc)
	for _, keep := range []keep{
		func(g *distlock.TryGuard) (context.Context, context.CancelFunc) {
			done = g.Context().Done() // does not keep the guard
			return nil, none
		},
		func(g *distlock.TryGuard) (context.Context, context.CancelFunc) { return g.Context(), none },
		func(g *distlock.TryGuard) (context.Context, context.CancelFunc) {
			again, _ := g.Reenter()
			_ = g.Release()
			return again.Context(), none
		},
		func(g *distlock.TryGuard) (context.Context, context.CancelFunc) {
			return context.WithValue(g.Context(), key{}, 1), none
		},
		func(g *distlock.TryGuard) (context.Context, context.CancelFunc) {
			return context.WithTimeout(g.Context(), time.Hour)
		},
	} {
		func() {
			ctx, cancel := keep(assert.Value(m.Lock("a").TryLock(t.Context()))(t))
			defer cancel()
			if ctx != nil {
				collect(m)
				if ctx.Err() != nil || !held("a") {
					t.Errorf("released although a %T is referenced: %v", ctx, context.Cause(ctx))
				}
			}
			runtime.KeepAlive(ctx)
		}()
		for held("a") { // the test's time limit bounds this loop
			runtime.GC()
			runtime.Gosched()
		}
		<-done
		isDrop := func(e distlock.Event) bool { return e.Kind == distlock.EventDropped }
		if events := d.take(); !slices.ContainsFunc(events, isDrop) {
			t.Errorf("events are %v", events)
		}
	}
}

type key struct{}

// If context.AfterFunc has registered a function on the context of an unreleased guard, the lock
// stays held.
func TestGuardContext_AfterFunc_KeepsTheLock(t *testing.T) {
	t.Parallel()
	m, _, held := collected(t)
	ended := make(chan struct{})
	func() {
		g := assert.Value(m.Lock("a").TryLock(t.Context()))(t)
		context.AfterFunc(g.Context(), func() { close(ended) })
	}()
	collect(m)
	if !held("a") {
		t.Error("released although a function waits for the end of its context")
	}
	_ = m.Close(t.Context())
	<-ended
}

// If the program references the context of one guard of a LockAll, all its locks stay held.
func TestGuardContext_OfOneOfLockAll_KeepsAll(t *testing.T) {
	t.Parallel()
	m, _, held := collected(t)
	var last context.Context
	func() {
		all := assert.Value(m.LockAll(t.Context(), []string{"a", "b", "c"}))(t)
		last = all.All()[2].Context()
	}()
	collect(m)
	if err := last.Err(); err != nil || !held("a") {
		t.Errorf("the context of one keeps all: %v", err)
	}
	runtime.KeepAlive(last)
}
