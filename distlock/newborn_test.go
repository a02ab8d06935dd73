package distlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/fault"
)

// drop deletes the documents of a collection, as MongoDB and operators do.
func (w *world) drop(collection string) {
	for _, raw := range w.mem.Documents(collection) {
		id, _ := raw.Lookup("_id").StringValueOK()
		w.mem.Remove(collection, id)
	}
}

// Tries to break: while the holder still trusts its lock, no process that was there before acquires
// it after both collections were dropped, lockpings first, at whichever of its commands that comes,
// whenever its pings and those of the holder are sent, by TryLock or by Lock.
func TestDrop_PingsThenLocks_NoSecondHolder(t *testing.T) {
	for _, waits := range []bool{false, true} {
		for first := 1; first <= 6; first++ {
			for second := first; second <= first+4; second++ {
				for _, phase := range []time.Duration{0, 7 * time.Second, 19 * time.Second} {
					name := fmt.Sprintf("waits %v, at %d and %d, %v", waits, first, second, phase)
					runInBubble(t, name, func(t *testing.T, w *world) {
						w.dropDuring(waits, phase, [2]int{first, second},
							[2]string{catalog.PingsCollection, catalog.LocksCollection}, 0)
					})
				}
			}
		}
	}
}

// Tries to break: where locks are dropped first, two may trust the lock, but only until the holder's
// next ping.
func TestDrop_LocksThenPings_TheHolderLearnsByItsNextPing(t *testing.T) {
	for first := 1; first <= 6; first++ {
		for second := first; second <= first+4; second++ {
			runInBubble(t, fmt.Sprintf("at %d and %d", first, second), func(t *testing.T, w *world) {
				w.dropDuring(false, 3*time.Second, [2]int{first, second},
					[2]string{catalog.LocksCollection, catalog.PingsCollection}, 40*time.Second)
			})
		}
	}
}

// dropDuring lets a process acquire a lock again and again while another holds it, drops collections
// before two of its commands, and checks for how long both trust the lock.
func (w *world) dropDuring(
	waits bool, phase time.Duration, at [2]int, collections [2]string, most time.Duration,
) {
	w.t.Helper()
	a := w.start(nil)
	time.Sleep(phase)
	b := w.start(nil)
	held := a.mustTry("a")
	time.Sleep(2 * time.Minute) // the document is old
	n := 0
	b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
		n++
		for i, when := range at {
			if n == when {
				w.drop(collections[i])
			}
		}
		return apply()
	})
	both := time.Duration(0)
	for start := time.Now(); time.Since(start) < 5*time.Minute; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		lock := b.Lock("a")
		acquire := lock.TryLock
		if waits {
			acquire = lock.Lock
		}
		g, err := acquire(ctx)
		cancel()
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for ; held.Err() == nil && g.Err() == nil; time.Sleep(time.Second) {
			if both += time.Second; both > most {
				w.t.Fatalf("both trust the lock for %v, fences %d and %d", both, held.Fence(), g.Fence())
			}
		}
		_ = g.Release()
		if held.Err() != nil {
			return
		}
	}
	w.t.Fatal("the lock was never to be had")
}

// Tries to break: a ping that is on its way when the collections are dropped makes the ping document
// anew, and so hides from its process for as long as its answer takes that it was removed.
func TestDrop_PingOnItsWay_NoSecondHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		held := a.mustTry("a")
		time.Sleep(2 * time.Minute)
		dropped := make(chan struct{})
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op != fault.Ping {
				return apply()
			}
			w.drop(catalog.PingsCollection)
			w.drop(catalog.LocksCollection)
			err := apply()
			b.store.Set(nil)
			close(dropped)
			time.Sleep(3 * time.Second)
			return err
		})
		<-dropped
		g, err := b.Lock("a").TryLock(t.Context())
		if err == nil && held.Err() == nil {
			t.Fatalf("both trust the lock, fences %d and %d", held.Fence(), g.Fence())
		}
		wantErr(t, err, distlock.ErrNoHeartbeat)
	})
}

// Tries to break: a new name costs one command more, and one that is old none.
func TestTryLock_NewName_CostsOneLook(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		looks := func() int { return p.store.Count(fault.Look) }
		for i, wait := range []time.Duration{0, time.Second, time.Minute, time.Hour} {
			time.Sleep(wait)
			before := looks()
			w.release(p.mustTry("new"))
			want := 0
			if i < 2 {
				want = 1
			}
			if got := looks() - before; got != want {
				t.Errorf("after %v: %d looks, want %d", wait, got, want)
			}
		}
	})
}
