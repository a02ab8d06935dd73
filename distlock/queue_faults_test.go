package distlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// If the lock is granted to a dead waiter, that waiter is evicted after the takeover time. Living
// waiters keep their places.
func TestLock_FirstWaiterDies_EvictedByTheRule(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, dead, b, c := w.start(nil), w.start(nil), w.start(nil), w.start(nil)
		g := a.MustTry("a")
		lost := dead.queue("a")
		second, third := b.queue("a"), c.queue("a")
		time.Sleep(time.Minute)
		dead.kill()
		died := time.Now()
		w.release(g) // granted to the dead waiter
		if l := w.Lock("a"); l.Process != dead.Process() {
			t.Fatalf("held by %q, want the first waiter", l.Process)
		}
		g = w.wantTurn(second)
		took := time.Since(died)
		if took < takeoverTime-pingTime-time.Second || took > takeoverTime+2*pingTime {
			t.Errorf("the dead one was evicted after %v, want the takeover time", took)
		}
		if g.TakeoverEvidence() == "" {
			t.Error("the guard knows no evidence of the eviction")
		}
		w.wantWaiting(third)
		w.release(g)
		w.release(w.wantTurn(third))
		_ = dead.Close(context.Background())
		<-lost
	})
}

// endsAtTheGrant is a context that ends at the first call of Err after armed is set.
type endsAtTheGrant struct {
	context.Context
	armed atomic.Bool
	done  chan struct{}
}

func (c *endsAtTheGrant) Done() <-chan struct{} { return c.done }

func (c *endsAtTheGrant) Err() error {
	if c.armed.CompareAndSwap(true, false) {
		close(c.done)
		return nil
	}
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// If the context of a call ends at the instant of the grant, either the call returns a guard, or
// the next waiter soon acquires the lock.
func TestLock_ContextEndsAtTheGrant_NothingIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		for i := range 50 { // repeated, because the call's select chooses at random
			name := fmt.Sprint(i)
			g := a.MustTry(name)
			ctx := &endsAtTheGrant{Context: t.Context(), done: make(chan struct{})}
			first := b.queueCtx(ctx, name)
			var turns []<-chan turn
			if i%2 == 0 {
				turns = append(turns, b.queue(name))
			}
			turns = append(turns, c.queue(name))
			ctx.armed.Store(true)
			w.release(g)
			if got := <-first; got.err == nil {
				w.release(got.guard)
			} else {
				wantErr(t, got.err, context.Canceled)
			}
			start := time.Now()
			for _, next := range turns {
				w.release(w.wantTurn(next))
			}
			if took := time.Since(start); took > pingTime+5*time.Second {
				t.Fatalf("round %d: the next waiter waited %v", i, took)
			}
		}
	})
}

// freeByHand frees a lock as MongoDB's own lock manager does: it changes only the state.
func (w *world) freeByHand(name string) {
	w.T.Helper()
	var doc bson.D
	assert.Must(w.T, bson.Unmarshal(w.Document(name), &doc))
	for i := range doc {
		if doc[i].Key == "state" {
			doc[i].Value = int32(0)
		}
	}
	assert.Must(w.T, w.Mem.Put(catalog.LocksCollection, doc))
}

// If another program frees a lock or deletes its document, a waiter soon acquires the lock.
func TestLock_ForeignHand_WaitersFindIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for _, notices := range []bool{true, false} {
			a, b := w.start(nil), w.start(nil)
			if !notices {
				b.withoutNotices()
			}
			for name, hand := range map[string]func(string){
				"freed": w.freeByHand,
				"removed": func(name string) {
					w.Mem.Remove(catalog.LocksCollection, name)
				},
			} {
				a.MustTry(name)
				done := b.queue(name)
				time.Sleep(5 * time.Second)
				hand(name)
				start := time.Now()
				w.release(w.wantTurn(done))
				if took := time.Since(start); took > pingTime+pingTime/10+6*time.Second {
					t.Errorf("notices %v, %s: found after %v", notices, name, took)
				}
			}
			_ = a.Close(context.Background())
		}
	})
}

// If the heartbeat of a process has expired when one of its waiters is granted the lock, the waiter
// does not use the grant. It enters the queue again.
func TestLock_HeartbeatLostWhileWaiting_QueuesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		g := a.MustTry("a")
		done := b.queue("a")
		b.kill()
		time.Sleep(holdTime + time.Minute)
		w.release(g) // granted to a process whose heartbeat has expired
		w.wantWaiting(done)
		b.Store.Set(nil)
		start := time.Now()
		g = w.wantTurn(done)
		if took := time.Since(start); took > 2*pingTime {
			t.Errorf("it had the lock %v after the server came back", took)
		}
		assert.NoErr(t, g.Err(), "the guard is over already")
		w.release(g)
	})
}
