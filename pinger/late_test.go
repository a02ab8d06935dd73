package pinger_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/fault"
	"mongodlm/pinger"
)

// ReleaseLater repeats a release once per interval, until the server has answered.
func TestReleaseLater_RepeatsUntilAnswered(t *testing.T) {
	whileItPings(t, func(t *testing.T, b *bundle) {
		s := b.plantLock(t, "a", "process-1", 1, 1)
		b.owner.mu.Lock()
		b.owner.attempts = map[bson.ObjectID]bool{s.TS: true} // so Reap does not release s
		b.owner.mu.Unlock()
		b.store.Set(fault.Refusing(fault.Release))
		b.p.ReleaseLater(s, b.p.Last())
		b.p.ReleaseLater(s, b.p.Last())
		b.p.ReleaseDoubtful(catalog.Session{Name: "never held", TS: bson.NewObjectID()}, b.p.Last())
		time.Sleep(3 * interval)
		synctest.Wait()
		assert.Equal(t, b.p.Stats().Left, 1, "%d on the list, want %d")
		b.store.Set(nil)
		time.Sleep(2 * interval)
		synctest.Wait()
		l, _ := catalog.ParseLock(b.mem.Document(catalog.LocksCollection, "a"))
		if l.Held || b.p.Stats().Left != 0 {
			t.Errorf("held %v, %d left", l.Held, b.p.Stats().Left)
		}
	})
}

// Each pinger has its own queue of releases, and sends no release to another cluster. In mongos,
// the pingers of all clusters shared one queue. Each of them dropped an entry that matched nothing
// in its own cluster.
func TestReleaseLater_TwoClusters_EachServesItsOwn(t *testing.T) { // G2-6
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, other := setup(t, nil), setup(t, nil)
		s := one.plantLock(t, "a", "process-1", 1, 1)
		assert.Must(t, other.mem.Put(catalog.LocksCollection,
			bson.D{{Key: "_id", Value: "a"}, {Key: "state", Value: int32(1)},
				{Key: "process", Value: "process-1"}, {Key: "ts", Value: s.TS},
				{Key: "fence", Value: int64(1)}}))
		for _, b := range []*bundle{one, other} {
			b.start(t)
			defer b.close(t)
			b.owner.mu.Lock()
			b.owner.attempts = map[bson.ObjectID]bool{s.TS: true} // so Reap does not release s
			b.owner.mu.Unlock()
		}
		one.store.Set(fault.Refusing(fault.Release))
		one.p.ReleaseLater(s, one.p.Last())
		time.Sleep(3 * interval)
		synctest.Wait()
		if n, held := other.store.Count(fault.Release), one.p.Stats().Left; n != 0 || held != 1 {
			t.Errorf("the other cluster got %d releases, %d wait for their own", n, held)
		}
		one.store.Set(nil)
		time.Sleep(2 * interval)
		synctest.Wait()
		for b, want := range map[*bundle]bool{one: false, other: true} {
			if l, _ := catalog.ParseLock(b.mem.Document(catalog.LocksCollection, "a")); l.Held != want {
				t.Errorf("held %v, want %v", l.Held, want)
			}
		}
	})
}

// Close tries the queued releases once more. If one fails, the ping document stays, and the error
// names the locks that stay held.
func TestClose_NamesWhatStaysHeld(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bundle) {
		b.start(t)
		term := b.p.Last()
		b.store.Set(fault.Refusing(fault.Release))
		b.p.ReleaseLater(catalog.Session{Name: "precious", TS: bson.NewObjectID()}, term)
		err := b.p.Close(t.Context())
		if err == nil || !strings.Contains(err.Error(), "precious") {
			t.Errorf("close: %v", err)
		}
		if !errors.Is(term.Err(), pinger.ErrStopped) {
			t.Errorf("term: %v", term.Err())
		}
		if b.mem.Document(catalog.PingsCollection, "process-1") == nil {
			t.Error("the ping document was removed, but the lock stays held")
		}
	})
}

// If the outcome of removing the ping document is unknown, Close tries once more and returns no
// error.
func TestClose_RemovalOfUnknownOutcome_IsTriedOnceMore(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, nil)
			b.start(t)
			b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				if call.Op != fault.RemovePing || b.store.Count(fault.RemovePing) > 1 {
					return apply()
				}
				if applied {
					return errors.Join(apply(), fault.Lost(call.Op))
				}
				return fault.Lost(call.Op)
			})
			b.close(t)
			if b.mem.Document(catalog.PingsCollection, "process-1") != nil ||
				b.store.Count(fault.RemovePing) != 2 {
				t.Errorf("applied %v: still there after %d tries", applied, b.store.Count(fault.RemovePing))
			}
		})
	}
}

// A doubt is a command with an unknown outcome, which may still acquire a lock. If Close gives up
// the id of that command, it returns ErrUnknownOutcome. If a copy of the process uses that id, the
// lock belongs to the copy, and Close returns nil. A doubt of an earlier id does not concern Close.
func TestClose_Doubt_BelongsToTheIDThatRaisedIt(t *testing.T) {
	t.Parallel()
	remove := func(process string) func(*testing.T, *bundle) {
		return func(_ *testing.T, b *bundle) { b.mem.Remove(catalog.PingsCollection, process) }
	}
	twin := func(t *testing.T, b *bundle) { assert.Must(t, b.twin(t, 2)) }
	condemn := func(t *testing.T, b *bundle) {
		seen := catalog.Ping{Process: "process-1", Seq: 1, HasSeq: true}
		assert.Must(t, catalogtest.On(b.mem).Condemn(t.Context(), "process-1", &seen,
			catalog.Condemnation{By: "other", Evidence: "silent"}))
	}
	for name, c := range map[string]struct {
		before, atClose func(*testing.T, *bundle)
		want            error
	}{
		"nothing happened":              {},
		"a twin now":                    {atClose: twin},
		"removed now":                   {atClose: remove("process-1"), want: catalog.ErrUnknownOutcome},
		"condemned now":                 {atClose: condemn, want: catalog.ErrUnknownOutcome},
		"removed before":                {before: remove("process-1")},
		"a twin before":                 {before: twin},
		"a twin before, removed at end": {before: twin, atClose: remove("process-2")},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, b *bundle) {
				b.start(t)
				b.p.Doubt(b.p.Last())
				if c.before != nil {
					c.before(t, b)
					time.Sleep(2 * interval)
					synctest.Wait()
					assert.MustEqual(t, b.p.Process(), "process-2", "it pings as %s, want %s")
				}
				if c.atClose != nil {
					c.atClose(t, b)
				}
				pings := b.store.Count(fault.Ping)
				err := b.p.Close(context.Background())
				assert.Is(t, err, c.want)
				if err != nil && !strings.Contains(err.Error(), "may stay held") {
					t.Errorf("an unknown outcome is reported as a known one: %v", err)
				}
				if c.before != nil {
					assert.Equal(t, b.store.Count(fault.Ping)-pings, 0,
						"Close pinged %d times for a doubt of another id, want %d")
				}
			})
		})
	}
}

// If the process has given up its last id, and no ping of the next id was acknowledged, Close still
// reports a doubt of the last id. Nothing else reports the lock.
func TestClose_Doubt_NoPingOfTheNextID_IsReported(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bundle) {
		b.start(t)
		b.p.Doubt(b.p.Last())
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Ping && call.Subject != "process-1" {
				return fault.Refused(call.Op)
			}
			return apply()
		})
		b.mem.Remove(catalog.PingsCollection, "process-1")
		time.Sleep(2 * interval)
		synctest.Wait()
		assert.Equal(t, b.p.Stats().ProcessIDs, int64(1), "%d ids given up, want %d")
		assert.Is(t, b.p.Close(t.Context()), catalog.ErrUnknownOutcome)
	})
}

// The release of a ghost takes longer than its term. The server applies it while Close waits for
// it, but the reply is lost. Close returns no error, since the lock is free.
func TestClose_LostReleaseOfAGhostOutlivesItsTerm_NothingIsLeft(t *testing.T) {
	change := func(c *pinger.Config) { c.Limit = time.Hour }
	inBubble(t, change, func(t *testing.T, b *bundle) {
		b.start(t)
		first := b.p.Last()
		b.p.Doubt(first)
		b.plantLock(t, "ghost", "process-1", 1, 1)
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			switch {
			case call.Op == fault.Release && b.store.Count(fault.Release) == 1:
				err := errors.Join(apply(), fault.Lost(call.Op))
				time.Sleep(hold + time.Minute)
				return err
			case call.Op == fault.Ping && b.store.Count(fault.Release) == 1 && first.Err() == nil:
				return fault.Refused(call.Op)
			}
			return apply()
		})
		for first.Err() == nil {
			time.Sleep(time.Second)
		}
		assert.Equal(t, b.store.Running(), 1, "%d commands in progress, want %d")
		b.close(t)
		if b.mem.Document(catalog.PingsCollection, "process-1") != nil {
			t.Error("the ping document remains")
		}
	})
}

// Reap finds no session of an earlier process id. So it reports none of them as released. A session
// whose acquisition was not answered is released later. A ghost of the earlier id may belong to a
// twin that still runs, so it is dropped.
func TestReap_SessionsOfAnEarlierID_AreNotReportedAsReleased(t *testing.T) {
	for _, ghost := range []bool{false, true} {
		t.Run(fmt.Sprint("ghost ", ghost), func(t *testing.T) {
			whileItPings(t, func(t *testing.T, b *bundle) {
				s := b.plantLock(t, "a", "process-1", 1, 1)
				b.store.Set(fault.Refusing(fault.Release))
				if !ghost {
					b.owner.mu.Lock()
					b.owner.attempts = map[bson.ObjectID]bool{s.TS: true} // so Reap does not release s
					b.owner.mu.Unlock()
					b.p.ReleaseDoubtful(s, b.p.Last())
				}
				time.Sleep(2 * interval)
				synctest.Wait()
				assert.Equal(t, b.p.Stats().Left, 1, "%d in the queue, want %d")
				b.mem.Remove(catalog.PingsCollection, "process-1")
				time.Sleep(3 * interval)
				synctest.Wait()
				assert.Equal(t, b.p.Process(), "process-2", "it pings as %s, want %s")
				assert.Equal(t, b.p.Stats().Late, int64(0), "%d late releases, want %d")
				b.store.Set(nil)
				time.Sleep(2 * interval)
				synctest.Wait()
				l, _ := catalog.ParseLock(b.mem.Document(catalog.LocksCollection, "a"))
				if l.Held != ghost || b.p.Stats().Left != 0 {
					t.Errorf("held %v, %d in the queue", l.Held, b.p.Stats().Left)
				}
			})
		})
	}
}

// If the release of an abandoned session outlives a term, Reap finds the session in the next term,
// and the pinger releases it. The pinger keeps no reference to the term that is over.
func TestRelease_GhostOfATermThatIsOver_KeepsNothing(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bundle) {
		var away atomic.Bool
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Release || call.Op == fault.Ping && away.Load() {
				return fault.Refused(call.Op)
			}
			return apply()
		})
		b.plantLock(t, "ghost", "process-1", 1, 12)
		b.start(t)
		defer b.close(t)
		synctest.Wait() // the release of the ghost has failed and is queued
		first := weak.Make(b.p.Last())
		away.Store(true)
		time.Sleep(hold + time.Second)
		sent := b.store.Count(fault.Release)
		b.store.Set(fault.Refusing(fault.Held))
		time.Sleep(3 * interval)
		synctest.Wait()
		assert.Equal(t, b.store.Count(fault.Release), sent,
			"%d releases were sent before Reap has found the ghost again, want %d")
		b.store.Set(nil)
		time.Sleep(3 * interval)
		synctest.Wait()
		l, _ := catalog.ParseLock(b.mem.Document(catalog.LocksCollection, "ghost"))
		if l.Held || b.p.Process() != "process-1" {
			t.Fatalf("held %v, process %s, want a release under the same id", l.Held, b.p.Process())
		}
		b.owner.mu.Lock()
		b.owner.terms = nil
		b.owner.mu.Unlock()
		for range 3 {
			runtime.GC()
		}
		if first.Value() != nil {
			t.Error("the first term is still there")
		}
	})
}

// At most 16 releases are sent at a time. If the server is unavailable, few releases are sent, and
// all sessions stay queued.
func TestReleaseSoon_Crowd_FewCommands(t *testing.T) {
	whileItPings(t, func(t *testing.T, b *bundle) {
		synctest.Wait() // waits for the chores of the first ping
		var now, most, sent atomic.Int32
		var away atomic.Bool
		b.store.Set(fault.On(fault.Release, func(apply func() error) error {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			defer now.Add(-1)
			sent.Add(1)
			time.Sleep(10 * time.Millisecond)
			if away.Load() {
				return fault.Refused(fault.Release)
			}
			return apply()
		}))
		const crowd = 100
		enlist := func() {
			for i := range crowd {
				s := b.plantLock(t, fmt.Sprint(i), "process-1", 1, int64(i+1))
				b.p.ReleaseSoon(s, b.p.Last())
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		enlist()
		if n := most.Load(); n != 16 || sent.Load() != crowd || b.p.Stats().Left != 0 {
			t.Errorf("%d at a time, %d commands, %d left", n, sent.Load(), b.p.Stats().Left)
		}
		away.Store(true)
		sent.Store(0)
		enlist()
		if n := sent.Load(); n > 32 || b.p.Stats().Left != crowd {
			t.Errorf("%d commands to a server that is away, %d left", n, b.p.Stats().Left)
		}
		away.Store(false)
		time.Sleep(2 * interval)
		synctest.Wait()
		assert.Equal(t, b.p.Stats().Left, 0, "%d left, want %d")
	})
}
