package pinger_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/fault"
	"mongodlm/pinger"
)

func (b *bundle) plantPing(t *testing.T, process string, age time.Duration) {
	t.Helper()
	err := b.mem.Put(catalog.PingsCollection, bson.D{
		{Key: "_id", Value: process}, {Key: "ping", Value: time.Now().Add(-age)}})
	assert.Must(t, err)
}

func (b *bundle) plantLock(
	t *testing.T, name, process string, state int, fence int64,
) catalog.Session {
	t.Helper()
	s := catalog.Session{Name: name, TS: bson.NewObjectID()}
	err := b.mem.Put(catalog.LocksCollection, bson.D{
		{Key: "_id", Value: name}, {Key: "state", Value: int32(state)}, {Key: "process", Value: process},
		{Key: "ts", Value: s.TS}, {Key: "fence", Value: fence}})
	assert.Must(t, err)
	return s
}

// Old pings are deleted by the first two prunings, which are one interval apart. Later prunings are
// rare. Young pings and the pings of holders stay (SERVER-1880).
func TestPrune_FirstTicksThenRarely(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bundle) {
		b.plantPing(t, "old", 4*24*time.Hour+time.Second)
		b.plantPing(t, "old but holds", 5*24*time.Hour)
		b.plantPing(t, "last holder", 5*24*time.Hour)
		b.plantPing(t, "young", 4*24*time.Hour-time.Hour)
		b.plantLock(t, "a", "old but holds", 1, 1)
		b.plantLock(t, "b", "last holder", 0, 1)
		b.start(t)
		defer b.close(t)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		for process, want := range map[string]bool{
			"old": false, "old but holds": true, "young": true, "last holder": false,
		} {
			if there := b.mem.Document(catalog.PingsCollection, process) != nil; there != want {
				t.Errorf("%s: there %v, want %v", process, there, want)
			}
		}
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		if n := b.store.Count(fault.OldPings); n < 6 || n > 21 {
			t.Errorf("pruned %d times in ten hours, want about ten", n)
		}
	})
}

// One wrong reading of the server's clock deletes no ping of a living process. Either the reading
// of the pruner is days ahead, or the reading in the ping is days behind.
func TestPrune_OneWrongReadingOfTheClock_DeletesNoLivingPing(t *testing.T) {
	for name, pruners := range map[string]bool{"the pruner's": true, "that of the ping": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, b *bundle) {
				var pings atomic.Int64
				b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
					if n := pings.Add(1); call.Op == fault.Ping && pruners && n%5 == 1 {
						b.skew.Store(int64(5 * 24 * time.Hour))
						defer b.skew.Store(0)
					}
					return apply()
				})
				ping := func(i int) { // pings for another process
					skew := time.Duration(0)
					if !pruners && i%5 == 1 {
						skew = -5 * 24 * time.Hour
					}
					b.plantPing(t, "idle", -skew)
				}
				ping(0)
				b.start(t)
				defer b.close(t)
				for i := range 2000 {
					ping(i)
					time.Sleep(interval)
					if b.mem.Document(catalog.PingsCollection, "idle") == nil {
						t.Fatalf("deleted after %d pings", i)
					}
				}
			})
		})
	}
}

// Pings are on time even while the other work of the pinger hangs.
func TestChores_Hang_PingsComeOnTime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bundle) {
		b.store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
			if call.Op != fault.Ping {
				<-ctx.Done()
				return ctx.Err()
			}
			return apply()
		})
		b.start(t)
		time.Sleep(10 * interval)
		synctest.Wait()
		if n := b.store.Count(fault.Ping); n < 9 {
			t.Errorf("%d pings in ten intervals", n)
		}
		b.store.Set(nil)
		b.close(t)
	})
}

// Reap releases only ghosts. A ghost is a session in the store that belongs to no guard, no pending
// acquisition and no queued release.
func TestReap_ReleasesGhostsOnly(t *testing.T) {
	whileItPings(t, func(t *testing.T, b *bundle) {
		b.owner.mu.Lock() // the first Reap waits until all sessions have their owners
		guard := b.plantLock(t, "guard", "process-1", 1, 10)
		attempt := b.plantLock(t, "attempt", "process-1", 1, 11)
		b.plantLock(t, "ghost", "process-1", 1, 12)
		b.plantLock(t, "another's", "process-9", 1, 13)
		b.owner.guarded = []catalog.Session{guard}
		b.owner.attempts = map[bson.ObjectID]bool{attempt.TS: true}
		b.owner.mu.Unlock()
		time.Sleep(interval * 12 / 10)
		synctest.Wait()
		for name, want := range map[string]bool{
			"guard": true, "attempt": true, "ghost": false, "another's": true,
		} {
			l, bad := catalog.ParseLock(b.mem.Document(catalog.LocksCollection, name))
			if bad != nil || l.Held != want {
				t.Errorf("%s: held %v (%v), want %v", name, l.Held, bad, want)
			}
		}
		assert.Equal(t, b.p.Stats().Ghosts, 1, "%d ghosts, want %d")
	})
}

func (b *bundle) plantPlace(t *testing.T, name, process string) catalog.Session {
	t.Helper()
	r := catalog.Request{
		Session: catalog.Session{Name: name, TS: bson.NewObjectID()}, Process: process,
		Takeover: takeover,
	}
	assert.Value(catalogtest.On(b.mem).Enter(t.Context(), r, catalog.Queue))(t)
	return r.Session
}

// Within a ping interval, Reap removes a queue entry that belongs to no acquisition of the process,
// and keeps all other entries. Reap costs one read per ping, for any number of guards.
func TestReap_PlaceOfNobody_LeavesTheLine(t *testing.T) {
	whileItPings(t, func(t *testing.T, b *bundle) {
		b.owner.mu.Lock()
		for i := range 100 {
			g := b.plantLock(t, fmt.Sprint(i), "process-1", 1, int64(i+1))
			b.owner.guarded = append(b.owner.guarded, g)
		}
		b.plantLock(t, "busy", "process-9", 1, 7)
		ghost := b.plantPlace(t, "busy", "process-1")
		owned := b.plantPlace(t, "busy", "process-1")
		other := b.plantPlace(t, "busy", "process-9")
		b.owner.attempts = map[bson.ObjectID]bool{owned.TS: true}
		b.owner.mu.Unlock()
		time.Sleep(interval * 12 / 10)
		synctest.Wait()
		l, _ := catalog.ParseLock(b.mem.Document(catalog.LocksCollection, "busy"))
		if _, waits := l.WaitedBy(ghost.TS); waits || len(l.Waiters) != 2 || !l.Held {
			t.Errorf("held %v, waiters %+v, want those of %v and %v", l.Held, l.Waiters, owned, other)
		}
		if s := b.p.Stats(); s.Ghosts != 1 || s.Late != 1 {
			t.Errorf("%d ghosts and %d late releases, want 1 and 1", s.Ghosts, s.Late)
		}
		read := b.store.Count(fault.Held)
		pings := b.store.Count(fault.Ping)
		time.Sleep(10 * interval)
		synctest.Wait()
		read = b.store.Count(fault.Held) - read
		if pings = b.store.Count(fault.Ping) - pings; read != pings || pings < 8 {
			t.Errorf("%d reads in %d pings, want one each", read, pings)
		}
	})
}

// Reap reports a guard whose session is missing in the store, even if another session of the
// process has replaced it.
func TestReap_GuardGone_IsReported(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	assert.Must(t, b.p.Ping(t.Context()))
	for i := range 3 {
		b.owner.guarded = append(b.owner.guarded,
			b.plantLock(t, fmt.Sprint(i), "process-1", 1, int64(i+1)))
	}
	reap := func(want ...catalog.Session) {
		t.Helper()
		b.owner.vanished = nil
		assert.Must(t, b.p.Reap(t.Context(), b.p.Last()))
		if !slices.Equal(b.owner.vanished, want) {
			t.Errorf("reported %v, want %v", b.owner.vanished, want)
		}
	}
	reap()
	b.mem.Remove(catalog.LocksCollection, "1")
	reap(b.owner.guarded[1])
	b.plantLock(t, "1", "process-1", 1, 2)
	reap(b.owner.guarded[1])
}

// If the indexes cannot be created, the pinger tries again.
func TestPrepare_Fails_IsTriedAgain(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bundle) {
		b.store.Set(fault.On(fault.Prepare, func(apply func() error) error {
			if b.store.Count(fault.Prepare) < 3 {
				return fault.Refused(fault.Prepare)
			}
			return apply()
		}))
		b.start(t)
		defer b.close(t)
		time.Sleep(10 * interval)
		synctest.Wait()
		assert.Equal(t, b.store.Count(fault.Prepare), 3,
			"prepared %d times, want %d: until it succeeded")
	})
}

// A second Close with an ended context returns immediately, and does not cancel a release for which
// the first Close waits.
func TestClose_Second_DoesNotCancelTheFirst(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bundle) {
		b.store.Set(func(ctx context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Release {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return apply()
		})
		b.start(t)
		b.p.ReleaseSoon(b.plantLock(t, "a", "process-1", 1, 1), b.p.Term())
		first := make(chan error)
		go func() { first <- b.p.Close(context.Background()) }()
		synctest.Wait()
		ended, end := context.WithCancel(t.Context())
		end()
		began := time.Now()
		assert.NoErr(t, b.p.Close(ended), "the second close")
		assert.Equal(t, time.Since(began), 0, "it took %v, want %v")
		assert.NoErr(t, <-first, "the first close")
		if l, _ := catalog.ParseLock(b.mem.Document(catalog.LocksCollection, "a")); l.Held {
			t.Error("the lock is still held")
		}
	})
}

// New returns an error for an invalid configuration.
func TestNew_BadConfig(t *testing.T) {
	t.Parallel()
	b := &bundle{owner: &owner{}}
	for name, cfg := range map[string]pinger.Config{
		"empty":     {},
		"no store":  {Owner: b.owner, Interval: 1, Takeover: 2},
		"no timing": {Owner: b.owner},
	} {
		if _, err := pinger.New(t.Context(), cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
