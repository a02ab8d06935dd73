package distlock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// withoutNotices makes a process poll its grants, as on a deployment without change streams.
func (p *proc) withoutNotices() *proc {
	p.Store.Set(fault.On(fault.GrantStream, func(func() error) error {
		return catalog.ErrNoGrantStream
	}))
	return p
}

// A turn is the result of a call of Lock, with its duration.
type turn struct {
	guard *distlock.TryGuard
	err   error
	after time.Duration
}

// The call of Lock runs in a new goroutine. queue returns when the call waits or has ended.
func (p *proc) queue(name string, opts ...distlock.Option) <-chan turn {
	return p.queueCtx(context.Background(), name, opts...)
}

func (p *proc) queueCtx(ctx context.Context, name string, opts ...distlock.Option) <-chan turn {
	done := make(chan turn, 1)
	start := time.Now()
	go func() {
		g, err := p.Lock(name).Lock(ctx, opts...)
		done <- turn{g, err, time.Since(start)}
	}()
	synctest.Wait()
	return done
}

// The wait for the result of Lock is limited to two hours of virtual time.
func (w *world) ended(done <-chan turn) turn {
	w.T.Helper()
	const limit = 2 * time.Hour
	select {
	case got := <-done:
		return got
	case <-time.After(limit):
		w.T.Fatalf("it still waits after %v", limit)
	}
	return turn{}
}

func (w *world) wantTurn(done <-chan turn) *distlock.TryGuard {
	w.T.Helper()
	got := w.ended(done)
	if got.err != nil {
		w.T.Fatalf("Lock: %v", got.err)
	}
	w.T.Cleanup(func() { runtime.KeepAlive(got.guard) })
	return got.guard
}

// Each call gets the lock within a second after the release of the call before it.
func (w *world) wantInOrder(calls []<-chan turn) {
	w.T.Helper()
	for i, done := range calls {
		time.Sleep(time.Second)
		select {
		case turn := <-done:
			assert.Must(w.T, turn.err)
			time.Sleep(time.Second)
			w.release(turn.guard)
		default:
			w.T.Fatalf("call %d has been overtaken", i+1)
		}
	}
}

func (w *world) wantWaiting(done <-chan turn) {
	w.T.Helper()
	synctest.Wait()
	select {
	case got := <-done:
		w.T.Fatalf("it does not wait: %v, %v", got.guard, got.err)
	default:
	}
}

func (w *world) release(g *distlock.TryGuard) {
	w.T.Helper()
	assert.Must(w.T, g.Release(), "Release")
	synctest.Wait()
}

// Waiters of all processes acquire the lock in the order of their calls, with rising fences. This
// holds with a grant stream and with polling.
func TestLock_ManyProcesses_FirstComeFirstServed(t *testing.T) {
	for _, notices := range []bool{true, false} {
		runInBubble(t, fmt.Sprintf("notices %v", notices), func(t *testing.T, w *world) {
			holder := w.start(nil)
			g := holder.MustTry("a")
			procs := make([]*proc, 5)
			for i := range procs {
				procs[i] = w.start(nil)
				if !notices {
					procs[i].withoutNotices()
				}
			}
			var turns []<-chan turn
			for i := range 40 {
				turns = append(turns, procs[i*7%5].queue("a"))
				time.Sleep(time.Second)
			}
			last := g.Fence()
			for i, done := range turns {
				w.release(g)
				g = w.wantTurn(done)
				if g.Fence() <= last {
					t.Fatalf("turn %d: fence %d after %d", i, g.Fence(), last)
				}
				last = g.Fence()
				if i+1 < len(turns) {
					w.wantWaiting(turns[i+1])
				}
			}
			w.release(g)
		})
	}
}

// A hand-over costs two commands for any number of waiters: one to enter the queue, and one to
// release.
func TestLock_HandOver_TwoCommands(t *testing.T) {
	for _, n := range []int{1, 16, 64} {
		runInBubble(t, fmt.Sprint(n), func(t *testing.T, w *world) {
			p := w.start(nil)
			g := p.MustTry("a")
			warm := p.queue("a") // opens the stream of notices
			w.release(g)
			g = w.wantTurn(warm)
			before := p.Store.Total() - p.Store.Count(fault.Notice) // a notice is no command
			var turns []<-chan turn
			for range n {
				turns = append(turns, p.queue("a"))
			}
			for _, done := range turns {
				start := time.Now()
				w.release(g)
				if g = w.wantTurn(done); time.Since(start) != 0 {
					t.Errorf("handed over after %v, want at once", time.Since(start))
				}
			}
			if got := p.Store.Total() - before - p.Store.Count(fault.Notice); got > 2*n {
				t.Errorf("%d commands for %d hand-overs, want 2 each", got, n)
			}
			w.release(g)
		})
	}
}

func TestTryLock_OthersWait_DoesNotOvertake(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		reader := a.MustTry("a", distlock.Shared())
		writer := b.queue("a", distlock.Why("write"))
		_, err := c.Try("a", distlock.Shared())
		if e := held(t, err); e.Waiters != 1 || e.Mode != "shared" || e.Process != a.Process() {
			t.Errorf("error says %+v", e)
		}
		w.release(reader)
		w.release(w.wantTurn(writer))

		// If MongoDB's lock manager releases a lock, the lock becomes free, even if waiters are queued.
		g := a.MustTry("b")
		done := b.queue("b")
		w.freeByHand("b")
		assert.Is(t, assert.Err(c.Try("b")), distlock.ErrHeld)
		got := w.wantTurn(done) // the refused TryLock granted the lock
		wantErr(t, g.Release(), distlock.ErrLockLost)
		w.release(got)
	})
}
