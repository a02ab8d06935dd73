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
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/fault"
	"mongodlm/pinger"
)

func (b *bundle) plantPing(t *testing.T, process string, age time.Duration) {
	t.Helper()
	err := b.mem.Put(catalog.PingsCollection, bson.D{
		{Key: "_id", Value: process}, {Key: "ping", Value: time.Now().Add(-age)}})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) plantLock(t *testing.T, name, process string, state int, fence int64) catalog.HeldSession {
	t.Helper()
	s := catalog.HeldSession{Session: catalog.Session{Name: name, TS: bson.NewObjectID()}, Fence: fence}
	err := b.mem.Put(catalog.LocksCollection, bson.D{
		{Key: "_id", Value: name}, {Key: "state", Value: int32(state)}, {Key: "process", Value: process},
		{Key: "ts", Value: s.TS}, {Key: "fence", Value: fence}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The first tick prunes, later ones rarely; young pings and those of holders stay (SERVER-1880).
func TestPrune_FirstTickThenRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		b.plantPing(t, "old", 4*24*time.Hour+time.Second)
		b.plantPing(t, "old but holds", 5*24*time.Hour)
		b.plantPing(t, "last holder", 5*24*time.Hour)
		b.plantPing(t, "young", 4*24*time.Hour-time.Minute)
		b.plantLock(t, "a", "old but holds", 1, 1)
		b.plantLock(t, "b", "last holder", 0, 1)
		b.start(t)
		defer b.close(t)
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
		if n := b.store.Count(fault.Prune); n < 6 || n > 21 {
			t.Errorf("pruned %d times in ten hours, want about ten", n)
		}
	})
}

// A ping is on time whatever the chores do: they hang, and the next pings come.
func TestChores_Hang_PingsComeOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
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

// A ghost is what the store shows and nobody owns: not a guard, not an attempt under way, not a
// queued release.
func TestReap_ReleasesGhostsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		b.start(t)
		defer b.close(t)
		b.owner.mu.Lock() // the first chores, which begin here, see what is owned as soon as it stands there
		guard := b.plantLock(t, "guard", "process-1", 1, 10)
		attempt := b.plantLock(t, "attempt", "process-1", 1, 11)
		b.plantLock(t, "ghost", "process-1", 1, 12)
		b.plantLock(t, "another's", "process-9", 1, 13)
		b.owner.guarded = []catalog.HeldSession{guard}
		b.owner.attempts = map[bson.ObjectID]bool{attempt.TS: true}
		b.owner.mu.Unlock()
		time.Sleep(interval * 12 / 10)
		synctest.Wait()
		for name, want := range map[string]bool{"guard": true, "attempt": true, "ghost": false, "another's": true} {
			l, bad := catalog.ParseLock(b.mem.Document(catalog.LocksCollection, name))
			if bad != nil || l.Held != want {
				t.Errorf("%s: held %v (%v), want %v", name, l.Held, bad, want)
			}
		}
		if b.p.Stats().Ghosts != 1 {
			t.Errorf("%d ghosts, want 1", b.p.Stats().Ghosts)
		}
	})
}

// plantPlace puts a waiter of a process into the line of a lock that stands there already.
func (b *bundle) plantPlace(t *testing.T, name, process string) catalog.Session {
	t.Helper()
	r := catalog.Request{
		Session: catalog.Session{Name: name, TS: bson.NewObjectID()}, Process: process,
		Takeover: takeover,
	}
	if _, err := catalogtest.On(b.mem).Enter(t.Context(), r, catalog.Queue); err != nil {
		t.Fatal(err)
	}
	return r.Session
}

// Tries to break: a place in a line that no attempt of the process owns, as a command leaves it
// that was carried out after its caller gave up, is taken out of the line within a ping. Places of
// attempts that are under way, of queued releases and of other processes stay. It costs one small
// read a ping when nothing is wrong, however many guards there are.
func TestReap_PlaceOfNobody_LeavesTheLine(t *testing.T) {
	t.Parallel()
	for name, guards := range map[string]int{"few guards": 1, "many guards": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				b.start(t)
				defer b.close(t)
				b.owner.mu.Lock()
				for i := range guards {
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
				read := b.store.Count(fault.Held) + b.store.Count(fault.HeldSummary)
				pings := b.store.Count(fault.Ping)
				time.Sleep(10 * interval)
				synctest.Wait()
				read = b.store.Count(fault.Held) + b.store.Count(fault.HeldSummary) - read
				if pings = b.store.Count(fault.Ping) - pings; read != pings || pings < 8 {
					t.Errorf("%d reads in %d pings, want one each", read, pings)
				}
			})
		})
	}
}

// With many guards a count and a sum of fences are compared first; the list is read when they
// differ, and what it does not show is reported.
func TestReap_ManyGuards_TallyFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	if err := b.p.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		b.owner.guarded = append(b.owner.guarded, b.plantLock(t, fmt.Sprint(i), "process-1", 1, int64(i+1)))
	}
	reap := func(wantLists, wantVanished int) {
		t.Helper()
		lists := b.store.Count(fault.Held)
		b.owner.vanished = nil
		if err := b.p.Reap(t.Context(), b.p.Last()); err != nil {
			t.Fatal(err)
		}
		if got := b.store.Count(fault.Held) - lists; got != wantLists || len(b.owner.vanished) != wantVanished {
			t.Errorf("%d lists read and %d vanished, want %d and %d", got, len(b.owner.vanished), wantLists, wantVanished)
		}
	}
	reap(0, 0)
	b.mem.Remove(catalog.LocksCollection, "50")
	reap(1, 1)
	b.plantLock(t, "50", "process-1", 1, 51) // same count, same sum, another session: not seen here
	reap(0, 0)
}

// Late releases are repeated with every ping until the server has answered, and dropped when the
// session holds nothing any more.
func TestReleaseLater_RepeatsUntilAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		b.start(t)
		defer b.close(t)
		s := b.plantLock(t, "a", "process-1", 1, 1)
		b.owner.mu.Lock()
		b.owner.attempts = map[bson.ObjectID]bool{s.TS: true} // keep the reaper out of it
		b.owner.mu.Unlock()
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Release {
				return fault.Refused(call.Op)
			}
			return apply()
		})
		b.p.ReleaseLater(s.Session)
		b.p.ReleaseLater(s.Session)
		b.p.ReleaseLater(catalog.Session{Name: "never held", TS: bson.NewObjectID()})
		time.Sleep(3 * interval)
		synctest.Wait()
		if n := len(b.p.Late()); n != 2 {
			t.Errorf("%d on the list, want 2", n)
		}
		b.store.Set(nil)
		time.Sleep(2 * interval)
		synctest.Wait()
		l, _ := catalog.ParseLock(b.mem.Document(catalog.LocksCollection, "a"))
		if l.Held || len(b.p.Late()) != 0 {
			t.Errorf("held %v, list %v", l.Held, b.p.Late())
		}
	})
}

// A session may come to the list again when it was done before: its release was carried out, and a
// reply of the acquisition came after that. It is tried once an interval all the same.
func TestReleaseLater_ASessionTwice_IsTriedOnceAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		b.start(t)
		defer b.close(t)
		s := catalog.Session{Name: "a", TS: bson.NewObjectID()}
		synctest.Wait() // the chores of the first ping
		b.p.ReleaseLater(s)
		synctest.Wait() // done
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Release {
				time.Sleep(time.Millisecond)
				return errors.New("not now")
			}
			return apply()
		})
		b.p.ReleaseLater(s)
		tried := b.store.Count(fault.Release)
		time.Sleep(2*interval + interval/2)
		synctest.Wait()
		if n := b.store.Count(fault.Release) - tried; n != 3 || len(b.p.Late()) != 1 {
			t.Errorf("tried %d times in two intervals, want at once and once each; list %v", n, b.p.Late())
		}
		b.store.Set(nil)
	})
}

// Close tries the late releases once more, removes the ping and names what stays held.
func TestClose_NamesWhatStaysHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		b.start(t)
		term := b.p.Last()
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Release {
				return fault.Refused(call.Op)
			}
			return apply()
		})
		b.p.ReleaseLater(catalog.Session{Name: "precious", TS: bson.NewObjectID()})
		err := b.p.Close(t.Context())
		if err == nil || !strings.Contains(err.Error(), "precious") {
			t.Errorf("close: %v", err)
		}
		if !errors.Is(term.Err(), pinger.ErrStopped) {
			t.Errorf("term: %v", term.Err())
		}
		if b.mem.Document(catalog.PingsCollection, "process-1") != nil {
			t.Error("the ping document is still there")
		}
	})
}

// A ping document that may or may not be removed, over a connection that had died unnoticed, is
// removed by a second try: Close reports nothing that a user would have to look after.
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
			if b.mem.Document(catalog.PingsCollection, "process-1") != nil || b.store.Count(fault.RemovePing) != 2 {
				t.Errorf("applied %v: still there after %d tries", applied, b.store.Count(fault.RemovePing))
			}
		})
	}
}

// Indexes that cannot be created are tried again and do not stop anything.
func TestPrepare_Fails_IsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Prepare && b.store.Count(fault.Prepare) < 3 {
				return fault.Refused(call.Op)
			}
			return apply()
		})
		b.start(t)
		defer b.close(t)
		time.Sleep(10 * interval)
		synctest.Wait()
		if n := b.store.Count(fault.Prepare); n != 3 {
			t.Errorf("prepared %d times, want 3: until it succeeded", n)
		}
	})
}

// New refuses what cannot work, in words.
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

// Tries to break: Close is not silent about an acquisition of unknown outcome when its last ping
// gives the process id up, so that nobody reaps under it. What a twin has is the twin's.
func TestClose_Doubt_LastPingGivesTheIDUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(t *testing.T, b *bundle)
		want error
	}{
		"nothing happened": {func(*testing.T, *bundle) {}, nil},
		"a twin pinged": {func(t *testing.T, b *bundle) {
			if err := b.twin(t, 2); err != nil {
				t.Fatal(err)
			}
		}, nil},
		"removed": {func(_ *testing.T, b *bundle) {
			b.mem.Remove(catalog.PingsCollection, "process-1")
		}, catalog.ErrUnknownOutcome},
		"condemned": {func(t *testing.T, b *bundle) {
			seen := catalog.Ping{Process: "process-1", Seq: 1, HasSeq: true}
			err := catalogtest.On(b.mem).Condemn(t.Context(), "process-1", &seen, catalog.Condemnation{By: "other", Evidence: "silent"})
			if err != nil {
				t.Fatal(err)
			}
		}, catalog.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				b.start(t)
				b.p.Doubt(b.p.Last())
				c.harm(t, b)
				if err := b.p.Close(context.Background()); !errors.Is(err, c.want) {
					t.Errorf("close: %v, want %v", err, c.want)
				}
			})
		})
	}
}

// Tries to break: a doubt belongs to the process id under whose term the command was sent. An id
// that was given up before Close takes its doubt along: what a late command takes under it Close
// cannot look for, and says so; but what stands under a twin's id is the twin's. The next id has no
// share in it, whatever becomes of that.
func TestClose_Doubt_BelongsToTheIDThatRaisedIt(t *testing.T) {
	t.Parallel()
	remove := func(process string) func(*testing.T, *bundle) {
		return func(_ *testing.T, b *bundle) { b.mem.Remove(catalog.PingsCollection, process) }
	}
	twin := func(t *testing.T, b *bundle) {
		if err := b.twin(t, 2); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		before, atClose func(*testing.T, *bundle)
		late            bool // it is raised when the id was given up already
		want            error
	}{
		"removed before":               {before: remove("process-1"), want: catalog.ErrUnknownOutcome},
		"removed before, raised after": {before: remove("process-1"), late: true, want: catalog.ErrUnknownOutcome},
		"a twin before":                {before: twin},
		"a twin before, raised after":  {before: twin, late: true},
		"a twin before, removed now":   {before: twin, atClose: remove("process-2")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				b.start(t)
				first := b.p.Last()
				if !c.late {
					b.p.Doubt(first)
				}
				c.before(t, b)
				time.Sleep(2 * interval)
				synctest.Wait()
				if c.late {
					b.p.Doubt(first)
				}
				if b.p.Process() != "process-2" {
					t.Fatalf("it pings as %s", b.p.Process())
				}
				if c.atClose != nil {
					c.atClose(t, b)
				}
				pings := b.store.Count(fault.Ping)
				if err := b.p.Close(context.Background()); !errors.Is(err, c.want) {
					t.Errorf("close: %v, want %v", err, c.want)
				}
				if n := b.store.Count(fault.Ping) - pings; n != 0 {
					t.Errorf("Close pinged %d times for a doubt of another id", n)
				}
			})
		})
	}
}

// A ghost that is forgotten because the term that found it is over leaves nothing with the process
// id, which may be used for years.
func TestRelease_GhostOfATermThatIsOver_KeepsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
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
		synctest.Wait() // its release was tried, and is on the list
		first := weak.Make(b.p.Last())
		away.Store(true)
		time.Sleep(hold + time.Second)
		b.store.Set(nil)
		time.Sleep(3 * interval)
		synctest.Wait()
		if n := b.p.Stats().Ghosts; n != 2 || b.p.Process() != "process-1" {
			t.Fatalf("%d ghosts, process %s, want another find under the same id", n, b.p.Process())
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
