package distlock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// collected returns a Manager and a function that reports whether a lock is held. The Manager uses
// the real clock, because the garbage collector does not use virtual time.
func collected(t *testing.T) (*distlock.Manager, func(name string) bool) {
	t.Helper()
	mem := memcatalog.New(memcatalog.Options{})
	m, err := distlock.New(t.Context(), distlock.Config{
		Catalog: mem, Ping: 5 * time.Millisecond,
	})
	assert.Must(t, err)
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m, func(name string) bool {
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
// process releases the lock.
func TestGuard_Dropped_IsReleased(t *testing.T) {
	t.Parallel()
	m, held := collected(t)
	none := func() {}
	type keep func(g *distlock.TryGuard) (context.Context, context.CancelFunc)
	for _, keep := range []keep{
		func(*distlock.TryGuard) (context.Context, context.CancelFunc) { return nil, none },
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
	}
}

type key struct{}

// If a goroutine keeps only the Done channel of an unreleased guard, the process releases the lock
// and closes the channel.
func TestGuardContext_DoneAlone_IsToldOfTheEnd(t *testing.T) {
	t.Parallel()
	m, held := collected(t)
	acquired, told := make(chan error, 1), make(chan struct{})
	go func() {
		g, err := m.Lock("a").TryLock(context.Background())
		acquired <- err
		if err == nil {
			<-g.Context().Done()
			close(told)
		}
	}()
	assert.Must(t, <-acquired)
	for held("a") {
		runtime.GC()
		runtime.Gosched()
	}
	<-told // the test's time limit bounds this wait
}

// If context.AfterFunc has registered a function on the context of an unreleased guard, the lock
// stays held.
func TestGuardContext_AfterFunc_KeepsTheLock(t *testing.T) {
	t.Parallel()
	m, held := collected(t)
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

// If the program no longer references any guard of one LockAll, the process releases all their
// locks together.
func TestGuardContext_LockAllDropped_AllAtOnce(t *testing.T) {
	t.Parallel()
	m, held := collected(t)
	func() {
		assert.Value(m.LockAll(t.Context(), []string{"a", "b", "c"}))(t)
	}()
	for held("a") || held("b") || held("c") {
		runtime.GC()
		runtime.Gosched()
	}
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

// If the context of an acquisition ends, the guard's context and the contexts derived from it end
// with the same error.
func TestGuardContext_Err_IsThatOfTheAcquisition(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g := assert.Value(w.start(nil).Lock("a").TryLock(ctx))(t)
		child, forget := context.WithTimeout(g.Context(), time.Hour)
		defer forget()
		<-child.Done()
		for _, c := range []context.Context{g.Context(), child} {
			if !errors.Is(c.Err(), context.DeadlineExceeded) {
				t.Errorf("ended with %v", c.Err())
			}
		}
		_ = g.Release()
	})
}
