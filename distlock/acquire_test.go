package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// TryLock writes the facts of the guard to the lock document.
func TestTryLock_Free_WritesTheDocument(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.MustTry("balancer", distlock.Why("doing balance round"), distlock.Label("Balancer"))
		l := w.Lock("balancer")
		if l.State != 1 || l.Process != p.Process() || l.Why != "doing balance round" ||
			l.TS != g.Session() || l.Fence != g.Fence() || l.Takeover != takeoverTime {
			t.Errorf("document is %v", w.Document("balancer"))
		}
		if parts := strings.Split(l.Process, ":"); len(parts) != 4 || parts[0] != "host" {
			t.Errorf("process is %q, want <host>:<pid>:<seconds>:<uuid>", l.Process)
		}
		if rest, ok := strings.CutPrefix(l.Who, l.Process+":Balancer:"); !ok || rest == "" {
			t.Errorf("who is %q, want <process>:<label>:<random>", l.Who)
		}
	})
}

// The fence rises even if the lock document was deleted. The first fence of a new document comes
// from the clock of the server.
func TestFence_DocumentDeleted_StillRises(t *testing.T) { // I2
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.MustTry("a")
		for range 5 {
			assert.Must(t, g.Release())
			time.Sleep(time.Second)
			w.Mem.Remove(catalog.LocksCollection, "a")
			next := p.MustTry("a")
			if next.Fence() <= g.Fence() {
				t.Fatalf("fence %d after %d", next.Fence(), g.Fence())
			}
			g = next
		}
	})
}

// An acquisition sends one command, or two commands if the lock has no document yet. A release
// sends one command. A TryLock that is refused sends two commands.
func TestCommands_Counted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		_ = p.MustTry("a").Release()
		count := func(what string, want int, do func()) {
			t.Helper()
			synctest.Wait()
			before := p.Store.Total()
			do()
			if got := p.Store.Total() - before; got != want {
				t.Errorf("%s: %d commands, want %d", what, got, want)
			}
		}
		var g *distlock.TryGuard
		count("uncontended TryLock", 1, func() { g = p.MustTry("a") })
		count("Release", 1, func() { _ = g.Release() })
		g2 := other.MustTry("a")
		count("TryLock on a live holder", 2,
			func() { wantErr(t, assert.Err(p.Try("a")), distlock.ErrHeld) })
		count("first TryLock of a name", 2, func() { g = p.MustTry("b") })
		count("Verify", 1, func() { _ = g.Verify(t.Context()) })
		leased := p.MustTry("leased", distlock.Lease(time.Hour))
		count("Renew", 1, func() { assert.NoErr(t, leased.Renew(t.Context())) })
		_ = g2.Release()
		_ = other.MustTry("a", distlock.Shared())
		count("sharing a held lock", 1, func() { g = p.MustTry("a", distlock.Shared()) })
		count("Release of a share", 1, func() { _ = g.Release() })
	})
}

// A HeldError contains the process, the reason and the fence of the holder, the age of its ping,
// and whether the holder is the process of the caller.
func TestTryLock_LiveHolder_HeldErrorHasTheFacts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		since := time.Now()
		g := a.MustTry("a", distlock.Why("because"))
		time.Sleep(10 * time.Second)
		_, err := b.Try("a")
		h := held(t, err)
		if h.Process != a.Process() || h.Why != "because" || h.Fence != g.Fence() || h.Self ||
			!h.Since.Equal(since.UTC().Truncate(time.Millisecond)) ||
			h.PingAge < 9*time.Second || h.PingAge > 11*time.Second {
			t.Errorf("facts are %+v", h)
		}
		_, err = a.Try("a") // G10: the lock is refused although its holder is this process
		if !held(t, err).Self {
			t.Errorf("holder is this process, and the error does not say so: %v", err)
		}
	})
}

// TryLock refuses invalid arguments before it sends a command.
func TestTryLock_BadInput_NoIO(t *testing.T) { // G1 to G3, G8, G9
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		before := p.Store.Total()
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		for name, c := range map[string]struct {
			name string
			ctx  context.Context
			opts []distlock.Option
			want error
		}{
			"empty name":    {"", t.Context(), nil, distlock.ErrBadName},
			"1025 bytes":    {strings.Repeat("x", 1025), t.Context(), nil, distlock.ErrBadName},
			"NUL":           {"a\x00b", t.Context(), nil, distlock.ErrBadName},
			"invalid UTF-8": {"a\xffb", t.Context(), nil, distlock.ErrBadName},
			"nil context":   {"a", nil, nil, distlock.ErrBadOption},
			"ended context": {"a", cancelled, nil, context.Canceled},
			"long why": {"a", t.Context(), []distlock.Option{distlock.Why(strings.Repeat("x", 1025))},
				distlock.ErrBadOption},
			"negative wait": {"a", t.Context(), []distlock.Option{distlock.WaitAtMost(-1)},
				distlock.ErrBadOption},
			"nil option": {"a", t.Context(), []distlock.Option{nil}, distlock.ErrBadOption},
			"colon in label": {"a", t.Context(), []distlock.Option{distlock.Label("a:b")},
				distlock.ErrBadOption},
			"no permits": {"a", t.Context(), []distlock.Option{distlock.Permits(0)}, distlock.ErrBadOption},
			"negative":   {"a", t.Context(), []distlock.Option{distlock.Permits(-1)}, distlock.ErrBadOption},
			"more permits than may hold": {"a", t.Context(),
				[]distlock.Option{distlock.Permits(catalog.MaxHolders + 1)}, distlock.ErrBadOption},
			"permits, then shared": {"a", t.Context(),
				[]distlock.Option{distlock.Permits(2), distlock.Shared()}, distlock.ErrBadOption},
		} {
			if g, err := p.Lock(c.name).TryLock(c.ctx, c.opts...); g != nil || !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		var none *distlock.TryGuard
		assert.NoErr(t, none.Release(), "releasing a nil guard")
		inTransaction := p.Lock("a").LockInTransaction
		wantErr(t, inTransaction(t.Context(), distlock.Shared()), distlock.ErrBadOption)
		wantErr(t, inTransaction(cancelled), context.Canceled)
		if got := p.Store.Total(); got != before {
			t.Errorf("%d commands were sent", got-before)
		}
		w.release(p.MustTry(strings.Repeat("x", 1024), distlock.Permits(catalog.MaxHolders)))
		wantErr(t, inTransaction(t.Context()), distlock.ErrNoTransactions)
	})
}

// If the reply to an acquire command is lost, TryLock reads the lock and returns a guard.
func TestTryLock_ReplyLost_IsLookedUp(t *testing.T) { // I2, I8
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.Store.Set(fault.Losing(fault.Acquire))
		g := p.MustTry("a")
		p.Store.Set(nil)
		if l := w.Lock("a"); !l.Held || l.TS != g.Session() || l.Fence != g.Fence() {
			t.Errorf("document is %v", w.Document("a"))
		}
		assert.NoErr(t, g.Release())
	})
}

// If TryLock cannot learn the outcome of its acquire command, it returns an error. If the server
// has applied the command, or applies it later, the process releases the lock within 1.1 ping
// intervals.
func TestTryLock_CannotAsk_LateListUndoes(t *testing.T) { // I3, I6, G3-1
	for _, late := range []bool{false, true} {
		runInBubble(t, fmt.Sprint("applied late ", late), func(t *testing.T, w *world) {
			p := w.start(nil)
			var acquire func() error
			p.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				switch {
				case call.Op == fault.Acquire:
					if acquire = apply; !late {
						_ = apply()
					}
					return fault.Lost(call.Op)
				case late: // a question shows that the lock is free
					return apply()
				}
				return fault.Refused(call.Op)
			})
			wantErr(t, assert.Err(p.Try("a")), distlock.ErrOutcomeUnknown)
			if late {
				assert.Must(t, acquire())
			}
			if !w.Lock("a").Held {
				t.Fatal("the acquire was not applied: the test proves nothing")
			}
			p.Store.Set(nil)
			time.Sleep(pingTime*11/10 + slack)
			synctest.Wait()
			w.wantFree("a")
			if late {
				assert.Equal(t, p.Stats().Ghosts, 1, "%d ghosts counted, want %d")
			}
		})
	}
}

// If the reply to an acquire command arrives after the deadline of the new guard, TryLock returns
// ErrLockLost, and the process releases the lock (see etcd 11408).
func TestTryLock_ReplyAfterDeadline_GivesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		p.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			switch call.Op {
			case fault.Acquire:
				err := apply()
				time.Sleep(3 * time.Second)
				return err
			case fault.Ping:
				return fault.Refused(call.Op)
			}
			return apply()
		})
		time.Sleep(p.Stats().TrustedFor - 2*time.Second)
		g, err := p.Try("a")
		if g != nil {
			t.Fatal("a guard was returned that was never to be trusted")
		}
		wantErr(t, err, distlock.ErrLockLost)
		p.Store.Set(nil)
		// The process releases the lock after its next ping, which comes within 1.1 ping intervals.
		time.Sleep(pingTime + pingTime/5)
		synctest.Wait()
		w.wantFree("a")
	})
}

// breaking breaks a lock and waits until its holder has detected the loss.
func (w *world) breaking(p *proc, name string) {
	w.T.Helper()
	assert.Must(w.T, p.Break(context.Background(), name, w.Lock(name).Holders()[0].Fence, "test"))
	time.Sleep(2 * pingTime)
}

// If a guard is lost or its Manager is closed, every call of its Release returns the same error. If
// one lock of a LockAll is lost, the context that its guards share ends.
func TestRelease_LostOrClosedBefore_OutcomeStays(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		lost, late, open := a.MustTry("lost"), a.MustTry("late"), a.MustTry("open")
		inner := assert.Value(open.Reenter())(t)
		done := assert.Value(open.Reenter())(t)
		orderly := a.MustTry("orderly")
		all := assert.Value(a.LockAll(t.Context(), []string{"x", "y"}))(t)
		w.release(done)
		w.release(orderly)
		for _, g := range []*distlock.TryGuard{lost, late, all.All()[0]} {
			w.breaking(b, g.Name())
		}
		wantErr(t, lost.Release(), distlock.ErrLockLost)
		wantErr(t, all.Err(), distlock.ErrLockLost)
		wantErr(t, context.Cause(all.Context()), distlock.ErrLockLost)
		assert.Must(t, a.Close(t.Context()))
		b.MustTry("open")
		for range 2 {
			wantErr(t, lost.Release(), distlock.ErrLockLost)
			wantErr(t, late.Release(), distlock.ErrLockLost)
			wantErr(t, inner.Release(), distlock.ErrClosed)
			wantErr(t, open.Release(), distlock.ErrClosed)
			if errors.Is(open.Release(), distlock.ErrLockLost) {
				t.Error("closed, and reported as lost")
			}
			err := all.Release()
			wantErr(t, err, distlock.ErrLockLost)
			wantErr(t, err, distlock.ErrClosed)
			for _, g := range []*distlock.TryGuard{done, orderly} {
				assert.NoErr(t, g.Release(), "released before, and again")
			}
		}
	})
}
