package distlock_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// Lock and TryLock return an error for a malformed lock document. The error names the collection,
// the _id and the field. No process takes over a malformed lock.
func TestOddDocument_EveryWayNamesTheField(t *testing.T) {
	waiter := bson.D{
		{Key: "ts", Value: bson.NewObjectID()}, {Key: "process", Value: "p"},
		{Key: "mode", Value: "permit"},
	}
	free, holder := bson.E{Key: "state", Value: int32(0)}, bson.E{Key: "process", Value: "p"}
	held := bson.E{Key: "state", Value: int32(1)}
	for name, c := range map[string]struct {
		fields bson.D
		at     string
	}{
		"state missing": {nil, "state"},
		"ts is a hex string": {bson.D{held, holder,
			{Key: "ts", Value: "0123456789abcdef01234567"}}, "ts"},
		"rev is the largest number": {bson.D{free, {Key: "rev", Value: int64(1<<63 - 1)}}, "rev"},
		"a permit without a limit": {bson.D{free, {Key: "waiters", Value: bson.A{waiter}}},
			"waiters.0.limit"},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p := w.start(nil)
			doc := append(bson.D{{Key: "_id", Value: "a"}}, c.fields...)
			assert.Must(t, w.Mem.Put(catalog.LocksCollection, doc))
			before := w.Document("a").String()
			lock := p.Lock("a")
			for range 3 {
				start := time.Now()
				for _, err := range []error{
					assert.Err(lock.TryLock(t.Context())),
					assert.Err(lock.TryLock(t.Context(), distlock.Shared())),
					assert.Err(lock.Lock(t.Context())),
					assert.Err(lock.Lock(t.Context(), distlock.Permits(3), distlock.WaitAtMost(time.Hour))),
				} {
					var bad *distlock.MalformedError
					if !errors.As(err, &bad) || bad.Field != c.at || bad.ID != "a" ||
						bad.Collection != "locks" {
						t.Errorf("%v, want a *MalformedError of locks/a/%s", err, c.at)
					}
				}
				if took := time.Since(start); took > time.Minute {
					t.Errorf("it took %v", took)
				}
				time.Sleep(takeoverTime)
			}
			assert.Equal(t, w.Document("a").String(), before, "changed\nbefore %[2]s\nafter  %[1]s")
		})
	}
}

// A shared lock has at most MaxHolders holders. If all these places are taken, Lock waits and
// TryLock returns ErrHeld.
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
		err := w.Mem.Put(catalog.LocksCollection, bson.D{
			{Key: "_id", Value: "a"}, {Key: "state", Value: int32(1)}, {Key: "process", Value: "other-0"},
			{Key: "ts", Value: first[0].Value}, {Key: "mode", Value: "shared"},
			{Key: "sharers", Value: sharers},
		})
		assert.Must(t, err)
		last := p.MustTry("a", distlock.Shared())
		_, err = p.Try("a", distlock.Shared())
		full, all := held(t, err), fmt.Sprint("it has ", catalog.MaxHolders, " holders")
		if !strings.Contains(full.Error(), all) {
			t.Errorf("TryLock of a full lock: %v", err)
		}
		next := p.queue("a", distlock.Shared())
		w.wantWaiting(next)
		assert.MustEqual(t, len(w.Lock("a").Sharers), catalog.MaxHolders, "%d hold it, want %d")
		w.release(last)
		w.release(w.wantTurn(next))
	})
}

// If the document of a lock with two holders was damaged, a release fails, and no other caller
// acquires the lock. After the repair, the lock is free once both holders have left.
func TestRelease_OfOneOfSeveral_DamagedDocument_OthersKeepTheirs(t *testing.T) {
	for name, damage := range map[string]bson.E{
		"an unknown mode": {Key: "mode", Value: "intent"}, "no mode": {Key: "mode", Value: nil},
		"rev a double": {Key: "rev", Value: 7.0}, "fence a text": {Key: "fence", Value: "x"},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p, q, third := w.start(nil), w.start(nil), w.start(nil)
			leaves := p.MustTry("a", distlock.Permits(2))
			stays := q.MustTry("a", distlock.Permits(2))
			var doc bson.D
			assert.Must(t, bson.Unmarshal(w.Document("a"), &doc))
			damaged := slices.Clone(doc)
			for i := range doc {
				if doc[i].Key == damage.Key {
					damaged[i].Value = damage.Value
				}
			}
			assert.Must(t, w.Mem.Put(catalog.LocksCollection, damaged))
			assert.Is(t, leaves.Release(), distlock.ErrMalformed)
			for _, how := range []distlock.Option{distlock.Shared(), distlock.Label("alone")} {
				if g, err := third.Try("a", how); err == nil {
					t.Errorf("fence %d acquired beside fence %d, which is trusted: %v", g.Fence(), stays.Fence(),
						stays.Err())
				}
			}
			assert.Must(t, w.Mem.Put(catalog.LocksCollection, doc))
			assert.NoErr(t, stays.Release(), "release of the last")
			time.Sleep(takeoverTime)
			if state := w.Document("a").Lookup("state"); state.AsInt64() != 0 {
				t.Errorf("it has no holder, and its state is %v", state)
			}
		})
	}
}
