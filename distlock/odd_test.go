package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// Every call that acquires a lock refuses a malformed document, names its field, and changes
// nothing.
func TestOddDocument_EveryWayNamesTheField(t *testing.T) {
	zero := assert.Value(bson.ParseDecimal128("0"))(t)
	waiter := bson.D{
		{Key: "ts", Value: bson.NewObjectID()}, {Key: "process", Value: "p"},
		{Key: "mode", Value: "permit"},
	}
	for name, c := range map[string]struct {
		field bson.E
		at    string
	}{
		"state is the Decimal128 0": {bson.E{Key: "state", Value: zero}, "state"},
		"rev is a text":             {bson.E{Key: "rev", Value: "7"}, "rev"},
		"rev is the largest number": {bson.E{Key: "rev", Value: int64(1<<63 - 1)}, "rev"},
		"fence is null":             {bson.E{Key: "fence", Value: nil}, "fence"},
		"a permit without a limit":  {bson.E{Key: "waiters", Value: bson.A{waiter}}, "waiters.0.limit"},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p := w.start(nil)
			doc := bson.D{{Key: "_id", Value: "a"}}
			if c.field.Key != "state" {
				doc = append(doc, bson.E{Key: "state", Value: int32(0)})
			}
			assert.Must(t, w.mem.Put(catalog.LocksCollection, append(doc, c.field)))
			before := w.doc("a").String()
			lock := p.Lock("a")
			for way, try := range map[string]func() (*distlock.TryGuard, error){
				"TryLock": func() (*distlock.TryGuard, error) { return lock.TryLock(t.Context()) },
				"TryLock, Shared": func() (*distlock.TryGuard, error) {
					return lock.TryLock(t.Context(), distlock.Shared())
				},
				"Lock": func() (*distlock.TryGuard, error) { return lock.Lock(t.Context()) },
				"Lock, Permits": func() (*distlock.TryGuard, error) {
					return lock.Lock(t.Context(), distlock.Permits(3), distlock.WaitAtMost(time.Hour))
				},
			} {
				start := time.Now()
				_, err := try()
				var bad *distlock.MalformedError
				if !errors.As(err, &bad) || bad.Field != c.at || bad.ID != "a" {
					t.Errorf("%s: %v, want a *MalformedError of %s", way, err, c.at)
				}
				if took := time.Since(start); took > slack {
					t.Errorf("%s took %v", way, took)
				}
			}
			assert.Equal(t, w.doc("a").String(), before, "changed\nbefore %[2]s\nafter  %[1]s")
		})
	}
}

// Sharers that MongoDB's lock manager left in a free lock prevent neither its acquisition nor its
// release.
func TestTryLock_FreeWithSharersLeftInIt_IsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		sharer := bson.D{{Key: "ts", Value: bson.NewObjectID()}, {Key: "process", Value: "p"}}
		err := w.mem.Put(catalog.LocksCollection, bson.D{
			{Key: "_id", Value: "a"}, {Key: "state", Value: int32(0)}, {Key: "mode", Value: "shared"},
			{Key: "sharers", Value: bson.A{sharer}},
		})
		assert.Must(t, err)
		w.release(p.mustTry("a"))
		w.release(p.mustTry("a"))
	})
}

// A lock has a bounded number of holders. The next sharer waits, and a try is refused. A number of
// permits above the bound is refused immediately.
func TestShared_AsManyAsMayHold_TheNextWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		sharers := bson.A{}
		for i := range catalog.MaxHolders - 1 {
			sharers = append(sharers, bson.D{
				{Key: "ts", Value: bson.NewObjectID()}, {Key: "process", Value: fmt.Sprint("other-", i)},
				{Key: "who", Value: "other"}, {Key: "takeoverMS", Value: takeoverTime.Milliseconds()},
			})
		}
		first := sharers[0].(bson.D)
		err := w.mem.Put(catalog.LocksCollection, bson.D{
			{Key: "_id", Value: "a"}, {Key: "state", Value: int32(1)}, {Key: "process", Value: "other-0"},
			{Key: "ts", Value: first[0].Value}, {Key: "mode", Value: "shared"},
			{Key: "sharers", Value: sharers},
		})
		assert.Must(t, err)
		last := p.mustTry("a", distlock.Shared())
		_, err = p.try("a", distlock.Shared())
		full, all := held(t, err), fmt.Sprint(catalog.MaxHolders, " hold it")
		if !strings.Contains(full.Error(), all) {
			t.Errorf("TryLock of a full lock: %v", err)
		}
		next := p.queue("a", distlock.Shared())
		w.wantWaiting(next)
		assert.MustEqual(t, len(w.lock("a").Sharers), catalog.MaxHolders, "%d hold it, want %d")
		w.release(last)
		w.release(w.wantTurn(next))
	})
}

func TestPermits_MoreThanMayHold_IsABadOption(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		_, err := p.try("a", distlock.Permits(catalog.MaxHolders+1))
		wantErr(t, err, distlock.ErrBadOption)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(catalog.MaxHolders)) {
			t.Errorf("it does not name the bound: %v", err)
		}
		w.release(p.mustTry("a", distlock.Permits(catalog.MaxHolders)))
	})
}

// The release of one of several holders frees only its own share, even if the document was damaged
// meanwhile. No other session joins the remaining holders.
func TestRelease_OfOneOfSeveral_DamagedDocument_OthersKeepTheirs(t *testing.T) {
	for name, damage := range map[string]bson.E{
		"an unknown mode": {Key: "mode", Value: "intent"}, "no mode": {Key: "mode", Value: nil},
		"rev a double": {Key: "rev", Value: 7.0}, "fence a text": {Key: "fence", Value: "x"},
	} {
		for _, lastFirst := range []bool{false, true} {
			runInBubble(t, fmt.Sprint(name, lastFirst), func(t *testing.T, w *world) {
				p, q, third := w.start(nil), w.start(nil), w.start(nil)
				leaves := p.mustTry("a", distlock.Permits(2))
				stays := q.mustTry("a", distlock.Permits(2))
				if lastFirst {
					leaves, stays = stays, leaves
				}
				var doc bson.D
				assert.Must(t, bson.Unmarshal(w.doc("a"), &doc))
				for i := range doc {
					if doc[i].Key == damage.Key {
						doc[i].Value = damage.Value
					}
				}
				assert.Must(t, w.mem.Put(catalog.LocksCollection, doc))
				assert.NoErr(t, leaves.Release(), "release")
				for _, how := range []distlock.Option{distlock.Shared(), distlock.Label("alone")} {
					if g, err := third.try("a", how); err == nil {
						t.Errorf("fence %d acquired beside fence %d, which is trusted: %v", g.Fence(), stays.Fence(),
							stays.Err())
					}
				}
				assert.NoErr(t, stays.Release(), "release of the last")
				if state := w.doc("a").Lookup("state"); state.AsInt64() != 0 {
					t.Errorf("nobody holds it, and its state is %v", state)
				}
			})
		}
	}
}

// If replies are lost while the document is malformed, no release is repeated forever. Close
// reports no lock that was never held.
func TestTryLock_RepliesLostOverAMalformedDocument_LeaveNoReleases(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		err := w.mem.Put(catalog.LocksCollection,
			bson.D{{Key: "_id", Value: "a"}, {Key: "state", Value: "held"}})
		assert.Must(t, err)
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if err := apply(); call.Op != fault.Acquire && call.Op != fault.Enter {
				return err
			}
			return fault.Lost(call.Op)
		})
		for range 50 {
			if g, err := p.try("a"); g != nil || err == nil {
				t.Fatal("a malformed lock was acquired")
			}
		}
		time.Sleep(3 * pingTime)
		releases := p.store.Count(fault.Release)
		time.Sleep(10 * pingTime)
		if more := p.store.Count(fault.Release) - releases; more != 0 || p.Stats().Unreleased != 0 {
			t.Errorf("%d releases in ten intervals, %d left", more, p.Stats().Unreleased)
		}
		p.store.Set(nil)
		assert.NoErr(t, p.Close(t.Context()), "close")
	})
}
