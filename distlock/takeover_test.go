package distlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
	"mongodlm/internal/test/locktest"
)

// The process repeats TryLock until it acquires the lock. The results are the guard and the elapsed
// time.
func (p *proc) until(name string, pause, limit time.Duration) (*distlock.TryGuard, time.Duration) {
	p.w.T.Helper()
	start := time.Now()
	for time.Since(start) <= limit {
		g, err := p.Try(name)
		if err == nil {
			return g, time.Since(start)
		}
		assert.MustBe(p.w.T, err, distlock.ErrHeld)
		time.Sleep(pause)
	}
	p.w.T.Fatalf("not taken over within %v", limit)
	return nil, 0
}

// A contender takes over the lock of a dead holder after the takeover time. At that time the
// deadline of the old guard has passed. The fence rises, the new guard contains evidence, the
// holder's ping is condemned, and the contender logs the takeover.
func TestTryLock_DeadHolder_IsTakenOver(t *testing.T) { // C1, I4
	inBubble(t, func(t *testing.T, w *world) {
		var log assert.Log
		a, b := w.start(nil), w.start(func(c *distlock.Config) { c.Logger = zerolog.New(&log) })
		lost := a.MustTry("a")
		deadline := lost.Deadline()
		a.kill()
		died := time.Now()
		g, _ := b.until("a", 10*time.Second, takeoverTime+time.Minute)
		if after := time.Since(died); after < takeoverTime-pingTime {
			t.Errorf("taken over %v after the death, takeover time is %v", after, takeoverTime)
		}
		if !time.Now().After(deadline) {
			t.Errorf("taken over before the holder's deadline %v", deadline)
		}
		wantErr(t, lost.Err(), distlock.ErrLockLost)
		if g.Fence() <= lost.Fence() || g.TakeoverEvidence() == "" {
			t.Errorf("fence %d after %d, evidence %q", g.Fence(), lost.Fence(), g.TakeoverEvidence())
		}
		ping, bad := catalog.ParsePing(w.Mem.Document(catalog.PingsCollection, lost.Process()))
		if bad != nil || ping.Condemned == nil || ping.Condemned.By != b.Process() {
			t.Errorf("ping of the dead is %+v (%v), want condemned by %s", ping, bad, b.Process())
		}
		if !strings.Contains(log.String(), "taken over") {
			t.Errorf("the log is %s", log.String())
		}
	})
}

// If a holder is suspended and another process takes the lock over, the guard is lost when the
// holder continues. Release returns ErrLockLost and does not change the document.
func TestRelease_AfterTakeover_LeavesNewHolderAlone(t *testing.T) { // B1, G2-1
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		old := a.MustTry("a")
		a.kill()
		g, _ := b.until("a", 10*time.Second, takeoverTime+time.Minute)
		before := w.Document("a")
		a.Store.Set(nil) // process A continues
		wantErr(t, old.Err(), distlock.ErrLockLost)
		wantErr(t, context.Cause(old.Context()), distlock.ErrLockLost)
		wantErr(t, old.Release(), distlock.ErrLockLost)
		if after := w.Document("a"); !bytes.Equal(before, after) {
			t.Errorf("document changed\nfrom %s\nto   %s", before, after)
		}
		assert.NoErr(t, g.Verify(t.Context()))
	})
}

// If a holder is already condemned, another contender takes the lock over immediately.
func TestTryLock_CondemnedByOneWhoDied_NextNeedNotWait(t *testing.T) { // C4
	inBubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start(nil), w.start(nil), w.start(nil)
		a.MustTry("a")
		a.kill()
		b.Store.Set(fault.On(fault.Evict, func(func() error) error {
			b.kill()
			return fault.Refused(fault.Evict)
		}))
		for range (takeoverTime + 2*time.Minute) / (20 * time.Second) {
			if !errors.Is(assert.Err(b.Try("a")), distlock.ErrHeld) {
				break
			}
			time.Sleep(20 * time.Second)
		}
		assert.MustEqual(t, b.Store.Count(fault.Evict), 1,
			"b tried to evict %d times, want once: the test proves nothing (%d)")
		assert.NoErr(t, assert.Err(c.Try("a")), "the first try of a third process")
	})
}

// If the reply to the command that condemns or evicts a holder is lost, the contender reads again
// and acquires the lock.
func TestTryLock_EvictReplyLost_Acquires(t *testing.T) { // I8
	for _, op := range []fault.Op{fault.Condemn, fault.Evict} {
		runInBubble(t, string(op), func(t *testing.T, w *world) {
			a, b := w.start(nil), w.start(nil)
			a.MustTry("tried")
			a.MustTry("waited")
			a.kill()
			b.Store.Set(fault.Losing(op))
			waits := b.queue("waited")
			b.until("tried", 10*time.Second, takeoverTime+time.Minute)
			w.wantTurn(waits)
			if l := w.Lock("tried"); !l.Held || l.Process != b.Process() {
				t.Errorf("document is %v", w.Document("tried"))
			}
		})
	}
}

// If two contenders take a lock over at the same instant, exactly one of them acquires it.
func TestTryLock_TwoOvertakeAtOnce_ExactlyOneWins(t *testing.T) { // H1
	inBubble(t, func(t *testing.T, w *world) {
		b, c := w.start(nil), w.start(nil)
		for round := range 500 {
			name := fmt.Sprint("lock ", round)
			dead := fmt.Sprint("dead ", round)
			plantDead(t, w, name, dead)
			var wg sync.WaitGroup
			wins := make([]*distlock.TryGuard, 2)
			for i, p := range []*proc{b, c} {
				wg.Go(func() { wins[i], _ = p.Try(name) })
			}
			wg.Wait()
			if (wins[0] == nil) == (wins[1] == nil) {
				t.Fatalf("round %d: guards %v, want exactly one", round, wins)
			}
		}
	})
}

// plantDead inserts a lock with a condemned holder, which the next contender evicts at its first
// read.
func plantDead(t *testing.T, w *world, name, process string) {
	t.Helper()
	long := time.Now().Add(-time.Hour)
	err := errors.Join(
		w.Mem.Put(catalog.LocksCollection, bson.D{
			{Key: "_id", Value: name}, {Key: "state", Value: int32(1)}, {Key: "process", Value: process},
			{Key: "ts", Value: bson.NewObjectID()}, {Key: "when", Value: long},
			{Key: "fence", Value: int64(1 << 40)}}),
		w.Mem.Put(catalog.PingsCollection, bson.D{
			{Key: "_id", Value: process}, {Key: "ping", Value: long}, {Key: "local", Value: long},
			{Key: "seq", Value: int64(7)}, {Key: "condemned", Value: bson.D{{Key: "by", Value: "test"}}}}),
	)
	assert.Must(t, err)
}

// If the takeover time of a contender is shorter than the takeover time of the holder, the
// contender waits for the longer time (client-go 47671).
func TestTryLock_HolderHasLongerTakeover_ContenderWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a := w.start(nil)
		b := w.start(func(c *distlock.Config) {
			c.Takeover, c.Ping, c.MaxWatchGap = time.Minute, 5*time.Second, time.Minute
		})
		a.MustTry("a")
		a.kill()
		start := time.Now()
		b.until("a", 5*time.Second, takeoverTime+time.Minute)
		if took := time.Since(start); took < takeoverTime-pingTime {
			t.Errorf("took %v, the holder's takeover time is %v", took, takeoverTime)
		}
	})
}

// If one clock is wrong by more than the takeover time, a live holder keeps its lock. The lock of a
// dead holder is taken over after the takeover time. In 2011 a mongos with a clock that was ahead
// took over the lock of a live holder.
func TestClocks_OneIsWrong_LivingKeepAndDeadAreTakenByWatching(t *testing.T) { // A1, A2
	for name, by := range map[string]struct{ holder, contender time.Duration }{
		"contender ahead": {0, 20 * time.Minute}, "contender behind": {0, -20 * time.Minute},
		"holder ahead": {48 * time.Hour, 0}, "holder behind": {-48 * time.Hour, 0},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			a := w.startBy(locktest.WrongClock(by.holder), nil)
			b := w.startBy(locktest.WrongClock(by.contender), nil)
			assert.Equal(t, a.Stats().Skew, -by.holder, "skew %v, want %v")
			g := a.MustTry("a")
			before := w.Document("a")
			for range 2 * takeoverTime / (10 * time.Second) {
				wantErr(t, assert.Err(b.Try("a")), distlock.ErrHeld)
				time.Sleep(10 * time.Second)
			}
			if err := g.Err(); err != nil || !slices.Equal(before, w.Document("a")) {
				t.Errorf("%v; the document was %v, is %v", err, before, w.Document("a"))
			}
			a.kill()
			next, took := b.until("a", 10*time.Second, takeoverTime+time.Minute)
			if took < takeoverTime-pingTime || !strings.HasPrefix(next.TakeoverEvidence(), "rule watch:") {
				t.Errorf("taken %v after its death on %q", took, next.TakeoverEvidence())
			}
		})
	}
}

// A dead process holds a lock and waits for it, and its ping document is gone. The lock is taken
// over, even if the contender's clock does not advance during a read.
func TestLock_DeadWithoutPing_HoldsAndWaits_IsTakenOver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		p.MustTry("a")
		p.queue("a")
		p.kill()
		w.Mem.Remove(catalog.PingsCollection, p.Process())
		g, err := other.Lock("a").Lock(t.Context(), distlock.WaitAtMost(5*takeoverTime))
		assert.Must(t, err)
		w.release(g)
	})
}
