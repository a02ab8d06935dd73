package distlock_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// seen returns the row of the listing for the first holder of a lock.
func (p *proc) seen(name string) distlock.LockInfo {
	p.w.t.Helper()
	for info, err := range p.Inspector().Locks(p.w.t.Context()) {
		assert.Must(p.w.t, err)
		if info.Name == name {
			return info
		}
	}
	p.w.t.Fatalf("no lock %q", name)
	return distlock.LockInfo{}
}

// Break changes nothing if MongoDB's lock manager acquired the lock with the same fence after the
// operator's read. Only a Break with the new session breaks the lock.
func TestBreak_ForeignHolderCameBetween_IsLeftAlone(t *testing.T) {
	for name, waits := range map[string]bool{"alone": false, "others wait": true} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, op := w.start(nil), w.start(nil)
			g := p.mustTry("a")
			saw := op.seen("a")
			w.release(g)
			manager{w}.take("a")
			if now := op.seen("a"); now.Fence != saw.Fence || now.Session == saw.Session {
				t.Fatalf("the scene is wrong: %+v", now)
			}
			var waiter <-chan turn
			if waits {
				waiter = p.queue("a")
			}
			before := w.doc("a")
			wantErr(t, op.Break(t.Context(), "a", saw.Fence, "x"), distlock.ErrFenceMismatch)
			wantErr(t, op.Break(t.Context(), "a", saw.Fence, "x", saw.Session), distlock.ErrFenceMismatch)
			if !bytes.Equal(before, w.doc("a")) {
				t.Errorf("the document changed: %s", w.doc("a"))
			}
			now := op.seen("a")
			wantErr(t, op.Break(t.Context(), "a", now.Fence, "x", now.Session, now.Session),
				distlock.ErrBadOption)
			assert.NoErr(t, op.Break(t.Context(), "a", now.Fence, "x", now.Session), "broken by its session")
			if waits {
				w.release(w.wantTurn(waiter))
			}
			next := op.mustTry("a")
			if next.Fence() <= g.Fence() {
				t.Errorf("fence %d after %d", next.Fence(), g.Fence())
			}
		})
	}
}

// If a process breaks its own lock, at most one guard is valid afterwards. The old guard is lost
// before the command runs, so the next holder's session can be trusted.
func TestBreak_OwnGuard_IsLostFirst(t *testing.T) {
	for name, waits := range map[string]bool{"alone": false, "others wait": true} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, other := w.start(nil), w.start(nil)
			g, unbroken := p.mustTry("a"), p.mustTry("b")
			var next <-chan turn
			if waits {
				next = other.queue("a")
			}
			p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				if call.Op == fault.Break || call.Op == fault.Evict {
					wantErr(t, g.Err(), distlock.ErrLockLost)
					wantErr(t, g.Context().Err(), context.Canceled)
				}
				return apply()
			})
			assert.Must(t, p.Break(t.Context(), "a", g.Fence(), "stuck"))
			wantErr(t, g.Release(), distlock.ErrLockLost)
			assert.NoErr(t, unbroken.Err())
			if waits {
				w.release(w.wantTurn(next))
			} else if w.lock("a").Held {
				t.Error("still held")
			}
		})
	}
}

// A pending acquisition returns no guard if its lock is broken meanwhile, whether its reply comes
// during the break or afterwards.
func TestBreak_OwnAttemptOnItsWay_HasNoGuard(t *testing.T) {
	for name, named := range map[string]bool{"by its fence": false, "by its session": true} {
		for _, waits := range []bool{false, true} {
			runInBubble(t, fmt.Sprint(name, ", others wait: ", waits), func(t *testing.T, w *world) {
				p, other := w.start(nil), w.start(nil)
				w.release(p.mustTry("a")) // raises the fence of a
				p.store.Set(fault.On(fault.Acquire, func(apply func() error) error {
					err := apply()
					time.Sleep(3 * time.Second) // until the reply
					return err
				}))
				tried := make(chan error, 1)
				go func() {
					g, err := p.try("a")
					if err == nil {
						err = g.Err()
					}
					tried <- err
				}()
				time.Sleep(time.Second)
				var next <-chan turn
				if waits {
					next = other.queue("a")
					time.Sleep(time.Second)
				}
				saw := other.seen("a")
				var session []bson.ObjectID
				if named {
					session = append(session, saw.Session)
				}
				assert.Must(t, p.Break(t.Context(), "a", saw.Fence, "stuck", session...))
				wantErr(t, <-tried, distlock.ErrLockLost)
				if waits {
					w.release(w.wantTurn(next))
				} else if w.lock("a").Held {
					t.Error("still held")
				}
			})
		}
	}
}

// A break grants the lock to no dead waiter, even if the only living waiter has just entered behind
// the dead ones.
func TestBreak_DeadInLine_AreLeftOut(t *testing.T) {
	for name, lives := range map[string]bool{
		"nobody else waits": false, "one lives": true, "their ping was removed": false,
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, dead, other := w.start(nil), w.start(nil), w.start(nil)
			g := p.mustTry("a")
			dead.queue("a")
			dead.queue("a")
			time.Sleep(time.Minute)
			dead.kill()
			time.Sleep(70 * time.Second)
			if name == "their ping was removed" {
				w.mem.Remove(catalog.PingsCollection, dead.Process())
				time.Sleep(takeoverTime)
			}
			var next <-chan turn
			if lives {
				next = other.queue("a")
			}
			if n := len(w.lock("a").Waiters); n < 2 {
				t.Fatalf("%d wait: the scene is wrong", n)
			}
			assert.Must(t, other.Break(t.Context(), "a", g.Fence(), "stuck"))
			if l := w.lock("a"); l.Held != lives || l.Process == dead.Process() || len(l.Waiters) > 0 {
				t.Errorf("it is granted to %+v", l)
			}
			if lives {
				w.release(w.wantTurn(next))
			}
		})
	}
}
