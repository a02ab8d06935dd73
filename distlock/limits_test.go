package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// The hooks in hangs simulate a server that does not answer. The obedient hook returns when its
// context ends or after CommandTimeout, like the driver. The deaf hook ignores its context and
// returns after 20 s.
var hangs = map[string]struct {
	hook  fault.Hook
	grace time.Duration // the time that a call may take after the end of its context
}{
	"obedient": {obedient, 0},
	"deaf":     {deaf, distlock.Grace},
}

func obedient(ctx context.Context, call fault.Call, _ func() error) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	<-ctx.Done()
	return fmt.Errorf("%s: %w: %w", call.Op, catalog.ErrUnknownOutcome, ctx.Err())
}

func deaf(_ context.Context, call fault.Call, _ func() error) error {
	time.Sleep(20 * time.Second)
	return fault.Lost(call.Op)
}

// An asking is one call of the API. The calling process holds the lock "own". If held is true,
// another process holds the lock "a".
type asking struct {
	name string
	held bool
	call asked
}

type (
	options = []distlock.Option
	asked   = func(ctx context.Context, p *proc, own *distlock.TryGuard, o options) error
)

func acquires(opts ...distlock.Option) asked {
	return func(ctx context.Context, p *proc, _ *distlock.TryGuard, more options) error {
		g, err := p.Lock("a").Lock(ctx, append(more, opts...)...)
		go g.Release()
		return err
	}
}

func tries(opts ...distlock.Option) asked {
	return func(ctx context.Context, p *proc, _ *distlock.TryGuard, _ options) error {
		g, err := p.Lock("a").TryLock(ctx, opts...)
		go g.Release()
		return err
	}
}

// These calls accept WaitAtMost.
var waits = []asking{
	{"Lock", false, acquires()},
	{"Lock of a held lock", true, acquires()},
	{"Lock, Shared", true, acquires(distlock.Shared())},
	{"Lock, Permits", true, acquires(distlock.Permits(3))},
	{"LockAll", false, func(ctx context.Context, p *proc, _ *distlock.TryGuard, o options) error {
		gs, err := p.LockAll(ctx, []string{"a", "b", "c"}, o...)
		go gs.Release()
		return err
	}},
	{"Do", true, func(ctx context.Context, p *proc, _ *distlock.TryGuard, o options) error {
		return p.Do(ctx, "a", func(context.Context, *distlock.TryGuard) error { return nil }, o...)
	}},
	{"LockInTransaction", true,
		func(ctx context.Context, p *proc, _ *distlock.TryGuard, o options) error {
			return p.Lock("a").LockInTransaction(ctx, o...)
		}},
}

// These calls do not accept WaitAtMost. They end at the latest with their context.
var asks = []asking{
	{"TryLock", false, tries()},
	{"TryLock of a held lock", true, tries(distlock.Shared())},
	{"Verify", false, func(ctx context.Context, _ *proc, own *distlock.TryGuard, _ options) error {
		return own.Verify(ctx)
	}},
	{"Break", true, func(ctx context.Context, p *proc, _ *distlock.TryGuard, _ options) error {
		return p.Break(ctx, "a", 7, "test")
	}},
	{"Locks", true, func(ctx context.Context, p *proc, _ *distlock.TryGuard, _ options) error {
		for _, err := range p.Inspector().Locks(ctx) {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"Holder", true, func(ctx context.Context, p *proc, _ *distlock.TryGuard, _ options) error {
		return assert.Err(p.Lock("a").Holder(ctx))
	}},
	{"RequestYield", true, func(ctx context.Context, p *proc, _ *distlock.TryGuard, _ options) error {
		return p.Lock("a").RequestYield(ctx, "test")
	}},
	{"PutFirst", false, func(ctx context.Context, _ *proc, own *distlock.TryGuard, _ options) error {
		return own.PutFirst(ctx, bson.NewObjectID())
	}},
	{"Renew", false, func(ctx context.Context, _ *proc, own *distlock.TryGuard, _ options) error {
		return own.Renew(ctx)
	}},
}

// If a command of a call hangs, the call still returns when its context ends or after WaitAtMost.
// Later the process releases what the call acquired.
func TestCalls_ServerHangs_ReturnInTime(t *testing.T) {
	for store, hang := range hangs {
		for answered := range 6 {
			for _, a := range slices.Concat(waits, asks) {
				name := fmt.Sprintf("%s/%s after %d commands", a.name, store, answered)
				t.Run("context/"+name, func(t *testing.T) {
					ask(t, a, answered, hang.hook, hang.grace, func(p *proc, own *distlock.TryGuard) error {
						ctx, cancel := context.WithTimeout(context.Background(), time.Second)
						defer cancel()
						return a.call(ctx, p, own, nil)
					})
				})
			}
			for _, a := range waits {
				name := fmt.Sprintf("%s/%s after %d commands", a.name, store, answered)
				t.Run("WaitAtMost/"+name, func(t *testing.T) {
					ask(t, a, answered, hang.hook, hang.grace, func(p *proc, own *distlock.TryGuard) error {
						err := a.call(context.Background(), p, own, options{distlock.WaitAtMost(time.Second)})
						checkPromised(t, err)
						return err
					})
				})
			}
		}
	}
}

// checkPromised checks that WaitAtMost ended a call with ErrHeld, ErrPermitMismatch, ErrUnavailable
// or ErrOutcomeUnknown, or that the call succeeded.
func checkPromised(t *testing.T, err error) {
	t.Helper()
	promised := err == nil || errors.Is(err, distlock.ErrHeld) ||
		errors.Is(err, distlock.ErrPermitMismatch) || errors.Is(err, distlock.ErrUnavailable) ||
		errors.Is(err, distlock.ErrOutcomeUnknown)
	text := fmt.Sprint(err)
	if !promised || strings.Contains(text, "not sent") || strings.Count(text, "distlock:") > 1 {
		t.Errorf("WaitAtMost ended with %v", err)
	}
}

// The server answers the first commands of a call and then hangs. The reply to the last answered
// command is lost; a read fails. A minute later the server recovers.
func ask(t *testing.T, a asking, answered int, hang fault.Hook, grace time.Duration,
	call func(*proc, *distlock.TryGuard) error) {
	inBubble(t, func(t *testing.T, w *world) {
		other, p := w.start(nil), w.start(nil)
		if a.held {
			other.MustTry("a")
		}
		own := p.MustTry("own", distlock.Lease(time.Hour))
		var n atomic.Int32
		p.Store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
			switch at := int(n.Add(1)); {
			case call.Op == fault.Ping:
				n.Add(-1)
				return apply()
			case at < answered:
				return apply()
			case at == answered:
				_ = apply()
				if !call.Op.Writes() {
					return fault.Refused(call.Op)
				}
				return fault.Lost(call.Op)
			}
			return hang(ctx, call, apply)
		})
		start := time.Now()
		returned := make(chan error, 1)
		go func() { returned <- call(p, own) }()
		var err error
		select {
		case err = <-returned:
		case <-time.After(10 * time.Minute):
			t.Error("the call hangs")
			assert.NoErr(t, p.Close(context.Background()))
			err = <-returned
		}
		if took := time.Since(start); took > time.Second+grace {
			t.Errorf("returned after %v with %v, want 1s", took, err)
		}
		time.Sleep(time.Minute)
		p.Store.Set(nil)
		time.Sleep(3 * pingTime)
		synctest.Wait()
		for _, name := range []string{"a", "b", "c"} {
			if w.Document(name) == nil {
				continue
			}
			if l := w.Lock(name); l.Held && l.Process != other.Process() || len(l.Waiters) > 0 {
				t.Errorf("%s is held by %s, waited for by %v when all is over", name, l.Process, l.Waiters)
			}
		}
	})
}

// If the server hangs, Close returns when its context ends, although other calls are pending. The
// error names the locks that may still be held. Then all pending calls return an error.
func TestClose_ServerHangs_NothingGoesOn(t *testing.T) {
	for store, hang := range hangs {
		runInBubble(t, store, func(t *testing.T, w *world) {
			p := w.start(nil)
			own := p.MustTry("own", distlock.Lease(time.Hour))
			refused := p.MustTry("refused")
			p.Store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
				if call.Subject == "refused" {
					return fault.Refused(call.Op)
				}
				return hang.hook(ctx, call, apply)
			})
			release := asking{name: "Release"}
			release.call = func(context.Context, *proc, *distlock.TryGuard, options) error {
				return refused.Release()
			}
			var under sync.Map
			// The calls that do not accept WaitAtMost run twice, so that one renewal waits for another.
			for i, a := range slices.Concat(waits, asks, asks, []asking{release}) {
				under.Store(i, a.name)
				go func() {
					if err := a.call(context.Background(), p, own, nil); err == nil {
						t.Errorf("%s returned no error", a.name)
					}
					under.Delete(i)
				}()
			}
			time.Sleep(time.Second)
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := p.Close(ctx)
			if took := time.Since(start); took > 100*time.Millisecond+2*hang.grace {
				t.Errorf("close took %v, want 100ms", took)
			}
			for _, name := range []string{"own", "refused"} {
				if err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("close says %v, want that %s may still be held", err, name)
				}
			}
			time.Sleep(2 * hang.grace)
			synctest.Wait()
			under.Range(func(_, name any) bool {
				t.Errorf("%s has not returned after Close", name)
				return true
			})
			time.Sleep(time.Minute) // until the hanging commands end
		})
	}
}

// If the context of Close has already ended, Close still releases the locks. If the server hangs
// too, Close returns after at most one CommandTimeout.
func TestClose_ContextHasEnded_StillGivesBack(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	runInBubble(t, "healthy", func(t *testing.T, w *world) {
		other, p := w.start(nil), w.start(nil)
		p.MustTry("a")
		other.MustTry("b")
		waited := make(chan error, 1)
		go func() { _, err := p.Lock("b").Lock(context.Background()); waited <- err }()
		synctest.Wait()
		id := p.Process()
		assert.NoErr(t, p.Close(ended), "close")
		wantErr(t, <-waited, distlock.ErrClosed)
		if w.Lock("a").Held || len(w.Lock("b").Waiters) > 0 {
			t.Error("a lock or a queue entry was not released")
		}
		if w.Mem.Document(catalog.PingsCollection, id) != nil {
			t.Error("the ping document is still there")
		}
	})
	runInBubble(t, "context of a guard", func(t *testing.T, w *world) {
		p := w.start(nil)
		all := assert.Value(p.LockAll(t.Context(), []string{"a", "b"}))(t)
		if err := p.Close(all.Context()); err != nil || w.Lock("a").Held || w.Lock("b").Held {
			t.Errorf("close: %v, held %t, %t", err, w.Lock("a").Held, w.Lock("b").Held)
		}
	})
	for store, hang := range hangs {
		runInBubble(t, store, func(t *testing.T, w *world) {
			p := w.start(nil)
			p.MustTry("precious")
			p.Store.Set(hang.hook)
			start := time.Now()
			err := p.Close(ended)
			if took := time.Since(start); took > commandTimeout+2*hang.grace {
				t.Errorf("close took %v, want one command time-out", took)
			}
			if err == nil || !strings.Contains(err.Error(), "precious") {
				t.Errorf("close: %v, want the lock that stays held named", err)
			}
			time.Sleep(time.Minute) // until the hanging commands end
		})
	}
}

// Close returns although its context never ends and the store ignores every context. In one case
// the process waits for a lock, and opens its stream of grants again.
func TestClose_StoreHangs_Returns(t *testing.T) {
	for _, waits := range []bool{false, true} {
		runInBubble(t, fmt.Sprint("waits ", waits), func(t *testing.T, w *world) {
			other, p := w.start(nil), w.start(nil)
			if waits {
				other.MustTry("a")
				p.queue("a")
			}
			p.Store.Set(func(_ context.Context, call fault.Call, _ func() error) error {
				time.Sleep(time.Hour)
				return fault.Lost(call.Op)
			})
			w.Mem.BreakStreams()
			time.Sleep(2 * time.Second)
			begun := time.Now()
			wantErr(t, p.Close(context.Background()), catalog.ErrUnknownOutcome)
			if took := time.Since(begun); took > 3*commandTimeout { // two tries to remove the ping
				t.Errorf("Close took %v", took)
			}
			time.Sleep(2 * time.Hour) // until the store returns
		})
	}
}
