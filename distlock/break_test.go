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

// The result is the first holder of the lock, as Inspector.Locks lists it.
func (p *proc) seen(name string) distlock.LockInfo {
	p.w.T.Helper()
	for info, err := range p.Inspector().Locks(p.w.T.Context()) {
		assert.Must(p.w.T, err)
		if info.Name == name {
			return info
		}
	}
	p.w.T.Fatalf("no lock %q", name)
	return distlock.LockInfo{}
}

// An operator reads a lock, and then MongoDB's lock manager acquires it under the same fence. If
// the operator calls Break with the fence or the session that it read, Break changes nothing. If
// the operator passes the new session, Break breaks the lock.
func TestBreak_ForeignHolderCameBetween_IsLeftAlone(t *testing.T) {
	for name, waits := range map[string]bool{"alone": false, "others wait": true} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, op := w.start(nil), w.start(nil)
			g := p.MustTry("a")
			saw := op.seen("a")
			w.release(g)
			manager{w}.take("a")
			if now := op.seen("a"); now.Fence != saw.Fence || now.Session == saw.Session {
				t.Fatalf("the setup is wrong: %+v", now)
			}
			var waiter <-chan turn
			if waits {
				waiter = p.queue("a")
			}
			before := w.Document("a")
			wantErr(t, op.Break(t.Context(), "a", saw.Fence, "x"), distlock.ErrFenceMismatch)
			wantErr(t, op.Break(t.Context(), "a", saw.Fence, "x", saw.Session), distlock.ErrFenceMismatch)
			if !bytes.Equal(before, w.Document("a")) {
				t.Errorf("the document changed: %s", w.Document("a"))
			}
			now := op.seen("a")
			wantErr(t, op.Break(t.Context(), "a", now.Fence, "x", now.Session, now.Session),
				distlock.ErrBadOption)
			assert.NoErr(t, op.Break(t.Context(), "a", now.Fence, "x", now.Session), "broken by its session")
			if waits {
				w.release(w.wantTurn(waiter))
			}
			next := op.MustTry("a")
			if next.Fence() <= g.Fence() {
				t.Errorf("fence %d after %d", next.Fence(), g.Fence())
			}
		})
	}
}

// If a process breaks its own lock, the guard is lost before the process sends the command, so two
// guards are never valid together.
func TestBreak_OwnGuard_IsLostFirst(t *testing.T) {
	for name, waits := range map[string]bool{"alone": false, "others wait": true} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, other := w.start(nil), w.start(nil)
			g, unbroken := p.MustTry("a"), p.MustTry("b")
			var next <-chan turn
			if waits {
				next = other.queue("a")
			}
			p.Store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
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
			} else if next := other.MustTry("a"); next.Fence() <= g.Fence()+1 {
				t.Errorf("fence %d after a break of %d", next.Fence(), g.Fence())
			}
		})
	}
}

// If a process breaks a lock while its own TryLock for that lock waits for a reply, TryLock returns
// ErrLockLost.
func TestBreak_OwnAttemptOnItsWay_HasNoGuard(t *testing.T) {
	for name, named := range map[string]bool{"by its fence": false, "by its session": true} {
		for _, waits := range []bool{false, true} {
			runInBubble(t, fmt.Sprint(name, ", others wait: ", waits), func(t *testing.T, w *world) {
				p, other := w.start(nil), w.start(nil)
				w.release(p.MustTry("a")) // raises the fence of a
				p.Store.Set(fault.Slow(0, 3*time.Second, fault.Acquire))
				tried := make(chan error, 1)
				go func() {
					g, err := p.Try("a")
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
				} else if w.Lock("a").Held {
					t.Error("still held")
				}
			})
		}
	}
}

// If Break frees a lock, it also removes dead waiters from the front of the queue. The first living
// waiter gets the lock.
func TestBreak_DeadInLine_AreLeftOut(t *testing.T) {
	for name, lives := range map[string]bool{
		"only dead waiters": false, "one lives": true, "their ping was removed": false,
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, dead, other := w.start(nil), w.start(nil), w.start(nil)
			g := p.MustTry("a")
			dead.queue("a")
			dead.queue("a")
			time.Sleep(time.Minute)
			dead.kill()
			time.Sleep(70 * time.Second)
			if name == "their ping was removed" {
				w.Mem.Remove(catalog.PingsCollection, dead.Process())
				time.Sleep(takeoverTime)
			}
			var next <-chan turn
			if lives {
				next = other.queue("a")
			}
			if n := len(w.Lock("a").Waiters); n < 2 {
				t.Fatalf("%d wait: the setup is wrong", n)
			}
			assert.Must(t, other.Break(t.Context(), "a", g.Fence(), "stuck"))
			if l := w.Lock("a"); l.Held != lives || l.Process == dead.Process() || len(l.Waiters) > 0 {
				t.Errorf("it is granted to %+v", l)
			}
			if lives {
				w.release(w.wantTurn(next))
			}
		})
	}
}
