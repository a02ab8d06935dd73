package distlock_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// A session that is released during the reaper's read is no ghost.
func TestAdversary_ReleaseUnderWayDuringTheRead_IsNoGhost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log syncBuffer
		p := w.start(func(c *distlock.Config) { c.Logger = zerolog.New(&log) })
		holder := w.start(nil)
		holder.mustTry("a")
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			switch call.Op {
			case fault.Release: // slow on the way to the server
				time.Sleep(3 * time.Second)
			case fault.Held: // slow on the way back
				err := apply()
				time.Sleep(4 * time.Second)
				return err
			}
			return apply()
		})
		for range 200 { // callers that continually give up
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, _ = p.Lock("a").Lock(ctx)
			cancel()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if n := p.Stats().Ghosts; n > 0 || strings.Contains(log.String(), "ghost") {
			t.Errorf("%d ghosts: %d lines of the log", n, strings.Count(log.String(), "ghost"))
		}
	})
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A session of an earlier process id stays on the late-release list until it is released.
func TestAdversary_ProcessIDChanges_FailedReleaseIsNotDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var late atomic.Int32
		p := w.start(func(c *distlock.Config) {
			c.Observer = observe(func(e distlock.Event) {
				if e.Kind == distlock.EventReleasedLate {
					late.Add(1)
				}
			})
		})
		g := p.mustTry("a")
		old := p.Process()
		p.store.Set(fault.Refusing(fault.Release))
		go func() { _ = g.Release() }()
		time.Sleep(20 * time.Second)
		w.mem.Remove(catalog.PingsCollection, old) // as an operator would remove the ping document
		time.Sleep(3 * pingTime)
		if p.Process() == old {
			t.Fatal("the process kept its id")
		}
		if l := w.lock("a"); !l.Held {
			t.Fatal("released though every release is refused")
		}
		if n := p.Stats().Unreleased; n != 1 || late.Load() > 0 {
			t.Errorf("%d sessions on the list, want 1: it is held by %s; reported as released late: %d",
				n, w.lock("a").Process, late.Load())
		}
		p.store.Set(nil)
		time.Sleep(3 * pingTime)
		w.wantFree("a")
		if err := p.Close(context.Background()); err == nil && w.lock("a").Held {
			t.Error("Close reports nothing, and the lock is held")
		}
	})
}

type observe func(e distlock.Event)

func (o observe) Observe(e distlock.Event) { o(e) }

// A failed release is tried again after every ping, even if the reaper's read fails.
func TestAdversary_ReapersReadFails_ReleaseIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		g := p.mustTry("a")
		p.store.Set(fault.Refusing(fault.Release, fault.Held))
		wantErr(t, g.Release(), distlock.ErrReleaseFailed)
		synctest.Wait()                         // until the one try in the background is over
		p.store.Set(fault.Refusing(fault.Held)) // as for a large collection without an index
		time.Sleep(2 * takeoverTime)
		if l := w.lock("a"); l.Held {
			_, err := other.try("a")
			t.Errorf("held twice the takeover time after its release, %d releases; another process: %v",
				p.store.Count(fault.Release), err)
		}
	})
}

// A session in a damaged document is released once the server answers. The reaper's read does not
// return such sessions.
func TestAdversary_DamagedDocument_FailedReleaseIsNotDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		var doc bson.D
		assert.Must(t, bson.Unmarshal(w.doc("a"), &doc))
		doc = append(doc, bson.E{Key: "waiters", Value: "damaged"})
		assert.Must(t, w.mem.Put(catalog.LocksCollection, doc))
		p.store.Set(fault.Refusing(fault.Release))
		wantErr(t, g.Release(), distlock.ErrReleaseFailed)
		time.Sleep(2 * pingTime)
		t.Logf("%d on the list", p.Stats().Unreleased)
		p.store.Set(nil)
		time.Sleep(3 * pingTime)
		state, _ := w.doc("a").Lookup("state").AsInt64OK()
		if state != 0 {
			t.Errorf("the lock is held still, %d releases sent, %d on the list: %v",
				p.store.Count(fault.Release), p.Stats().Unreleased, w.doc("a"))
		}
	})
}

// Close finds the session that a late copy of an enter command creates, even if the acquisition has
// succeeded.
func TestAdversary_EnterCarriedOutLate_CloseLooksForIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		first := true
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Enter && first {
				first = false
				go func() { // the network still has the command
					time.Sleep(3 * time.Second)
					_ = apply()
				}()
				return fault.Lost(call.Op)
			}
			return apply()
		})
		g, err := p.Lock("a").Lock(t.Context())
		assert.Must(t, err)
		w.release(g)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if !w.lock("a").Held {
			t.Skip("the late copy took nothing")
		}
		err = p.Close(context.Background())
		if l := w.lock("a"); l.Held {
			t.Errorf("Close: %v; the lock is held by %s, which is gone", err, l.Process)
		}
	})
}
