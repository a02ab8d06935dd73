package integration_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// processed are the deployments for tests that stop or kill real processes.
var processed = named("embedded", "standalone", "replicaset")

// B1, B2, B9: A holder that resumes after a takeover changes nothing. The holder is stopped between
// the check of its guard and its write, until another process has taken over and written. Then its
// context ends, its fenced write matches no document and its release changes nothing.
func TestFaults_HolderStopped_ComesBackToNothing(t *testing.T) {
	t.Parallel()
	forThese(t, processed, func(t *testing.T, w *world) {
		name := w.name("balancer")
		w.plantCounter(t, name)
		holder, other := w.bear(t, nil), w.bear(t, nil)
		a := holder.ask(order{Do: "lock", Name: name})
		for holder.ask(order{Do: "read", Name: name, Fenced: true}).Lost { // if the machine is slow
			holder.ask(order{Do: "release"})
			a = holder.ask(order{Do: "lock", Name: name})
		}
		holder.stop()
		injected.add(w.d.name, "SIGSTOP", "holding")
		next := other.ask(order{Do: "lock", Name: name})
		if next.Err != "" || next.Fence <= a.Fence || next.Taken == "" {
			t.Fatalf("not taken over: %+v", next)
		}
		for other.ask(order{Do: "read", Name: name, Fenced: true}).Lost {
			other.ask(order{Do: "release"})
			other.ask(order{Do: "lock", Name: name})
		}
		if r := other.ask(order{Do: "write", Name: name, Fenced: true}); r.Matched != 1 {
			t.Fatalf("the new holder's write: %+v", r)
		}
		before := w.document(t, catalog.LocksCollection, name)

		holder.tell(order{Do: "state"}) // the first order after the pause
		holder.resume()
		if r := holder.hear(); !r.Lost {
			t.Errorf("right after the pause: %+v, want ErrLockLost", r)
		}
		eventually(t, 10*time.Second, "its context has ended", func() bool {
			return holder.ask(order{Do: "state"}).Ended
		})
		if r := holder.ask(order{Do: "write", Name: name, Fenced: true}); r.Err != "" || r.Matched != 0 {
			t.Errorf("the stale fenced write: %+v, want nothing matched", r)
		}
		if r := holder.ask(order{Do: "release"}); !r.Lost {
			t.Errorf("Release: %+v, want ErrLockLost", r)
		}
		if after := w.document(t, catalog.LocksCollection, name); !slices.Equal(before, after) {
			t.Errorf("the lock was touched\nbefore %v\nafter  %v", before, after)
		}
	})
}

// B2: If a lock is taken over while its holder is stopped in a transaction, no write of it is
// committed.
func TestFaults_HolderStoppedInTransaction_LeavesNothing(t *testing.T) {
	t.Parallel()
	forThese(t, named("replicaset"), func(t *testing.T, w *world) {
		name := w.name("balancer")
		w.plantCounter(t, name)
		holder, other := w.bear(t, nil), w.bear(t, nil)
		if a := holder.ask(order{Do: "lock", Name: name}); a.Err != "" {
			t.Fatal(a.Err)
		}
		if r := holder.ask(order{Do: "transaction", Name: name}); r.Do != "inside" {
			t.Fatalf("%+v", r)
		}
		holder.stop()
		injected.add(w.d.name, "SIGSTOP", "transaction")
		if next := other.ask(order{Do: "lock", Name: name}); next.Err != "" || next.Taken == "" {
			t.Fatalf("not taken over: %+v", next)
		}
		holder.tell(order{Do: "go on"})
		holder.resume()
		r := holder.hear()
		if r.Do == "inside" { // the transaction ran again after a conflict
			r = holder.ask(order{Do: "go on"})
		}
		if !r.Lost {
			t.Errorf("the transaction: %+v, want ErrLockLost", r)
		}
		assert.Equal(t, w.counter(t, name), 0, "the transaction wrote %d, want %d")
	})
}

func (w *world) plantCounter(t testing.TB, id string) {
	t.Helper()
	w.plant(t, "work", bson.D{field("_id", id), field("n", int64(0))})
}

func (w *world) counter(t testing.TB, id string) int64 {
	t.Helper()
	return w.document(t, "work", id).Lookup("n").AsInt64()
}

// Jepsen's workload lock-set loses updates with naive writes and none with fenced writes. Three
// processes read, add one and write under the lock. A holder is stopped between its read and its
// write until the others have written.
func TestFaults_LockSet_FencedLosesNoUpdate_NaiveDoes(t *testing.T) {
	t.Parallel()
	forThese(t, named("embedded", "standalone"), func(t *testing.T, w *world) {
		family := []*relative{w.bear(t, nil), w.bear(t, nil), w.bear(t, nil)}
		naive := w.lockSet(t, family, 1, false)
		fenced := w.lockSet(t, family, 2, true)
		t.Logf("naive: %+v; fenced: %+v", naive, fenced)
		if naive.lost == 0 {
			t.Error("no update was lost naively: this test has no teeth")
		}
		assert.Equal(t, fenced.lost, 0, "%d fenced updates were lost, want %d")
		if fenced.refused == 0 {
			t.Error("no stale write was refused: nothing was tested")
		}
	})
}

// updates is the number of updates per process while a holder is stopped.
const updates = 5

// lockSetResult counts the updates of a run by their result.
type lockSetResult struct{ acknowledged, refused, lost int }

func (w *world) lockSet(t *testing.T, family []*relative, pauses int, fenced bool) lockSetResult {
	t.Helper()
	name := w.name(fmt.Sprintf("fenced-%v", fenced))
	w.plantCounter(t, name)
	var mu sync.Mutex // guards result
	var result lockSetResult
	write := func(r *relative) {
		a := r.ask(order{Do: "write", Name: name, Fenced: fenced}) // does not check the guard
		mu.Lock()
		defer mu.Unlock()
		switch {
		case a.Err != "":
			t.Errorf("write: %s", a.Err)
		case a.Matched == 1:
			result.acknowledged++
		default:
			result.refused++
		}
	}
	enter := func(r *relative) bool {
		if a := r.ask(order{Do: "lock", Name: name}); a.Err != "" {
			t.Errorf("lock: %s", a.Err)
			return false
		}
		a := r.ask(order{Do: "read", Name: name, Fenced: fenced})
		if a.Err != "" && !a.Lost {
			t.Errorf("read: %s", a.Err)
		}
		return a.Err == ""
	}
	for turn := range pauses {
		stopped := family[turn]
		for !enter(stopped) {
			stopped.ask(order{Do: "release"})
		}
		stopped.stop()
		injected.add(w.d.name, "SIGSTOP", "lock-set")
		var others sync.WaitGroup
		for _, r := range family {
			if r == stopped {
				continue
			}
			others.Go(func() {
				for range updates {
					if enter(r) {
						write(r)
					}
					r.ask(order{Do: "release"})
				}
			})
		}
		others.Wait()
		stopped.resume()
		write(stopped)
		stopped.ask(order{Do: "release"})
	}
	result.lost = result.acknowledged - int(w.counter(t, name))
	return result
}
