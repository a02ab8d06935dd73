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
)

// collected is a Manager in real time, since the garbage collector does not know virtual time.
func collected(t *testing.T) (*distlock.Manager, func(name string) bool) {
	t.Helper()
	mem := memcatalog.New(memcatalog.Options{})
	m, err := distlock.New(t.Context(), distlock.Config{
		Catalog: mem, Ping: 5 * time.Millisecond, Takeover: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	return m, func(name string) bool {
		l, bad := catalog.ParseLock(mem.Document(catalog.LocksCollection, name))
		return bad != nil || l.Held
	}
}

// It tries to break: who has nothing but the channel of a guard's context is told when the lock is
// given back.
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
	if err := <-acquired; err != nil {
		t.Fatal(err)
	}
	for held("a") {
		runtime.GC()
		runtime.Gosched()
	}
	<-told // the test's own time limit bounds it
}

// It tries to break: a function that waits for the end of a guard's context keeps the lock.
func TestGuardContext_AfterFunc_KeepsTheLock(t *testing.T) {
	t.Parallel()
	m, held := collected(t)
	ended := make(chan struct{})
	func() {
		g, err := m.Lock("a").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(g.Context(), func() { close(ended) })
	}()
	for pings := m.Stats().Pings + 3; m.Stats().Pings < pings; {
		runtime.GC()
		runtime.Gosched()
	}
	if !held("a") {
		t.Error("given back although a function waits for its end")
	}
	_ = m.Close(t.Context())
	<-ended
}

// It tries to break: locks that were acquired together and dropped together are given back
// together.
func TestGuardContext_LockAllDropped_AllAtOnce(t *testing.T) {
	t.Parallel()
	m, held := collected(t)
	func() {
		if _, err := m.LockAll(t.Context(), []string{"a", "b", "c"}); err != nil {
			t.Fatal(err)
		}
	}()
	for held("a") || held("b") || held("c") {
		runtime.GC()
		runtime.Gosched()
	}
	var last context.Context
	func() {
		all, err := m.LockAll(t.Context(), []string{"a", "b", "c"})
		if err != nil {
			t.Fatal(err)
		}
		last = all.All()[2].Context()
	}()
	for pings := m.Stats().Pings + 3; m.Stats().Pings < pings; {
		runtime.GC()
		runtime.Gosched()
	}
	if err := last.Err(); err != nil || !held("a") {
		t.Errorf("the context of one keeps all: %v", err)
	}
	runtime.KeepAlive(last)
}

// It tries to break: the guard's context, and one derived from it, end as the context of the
// acquisition did.
func TestGuardContext_Err_IsThatOfTheAcquisition(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g, err := w.start(nil).Lock("a").TryLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
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
