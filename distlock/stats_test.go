package distlock_test

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/leading"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
)

// Stats counts the held locks, the waiting calls, and the locks that the process still has to
// release. It sends no command.
func TestStats_HeldWaitingUnreleased_AsTheyAre(t *testing.T) {
	t.Run("stream", func(t *testing.T) { testStanding(t, "stream", "") })
	t.Run("polling", func(t *testing.T) { testStanding(t, "polling", fault.GrantStream) })
}

func testStanding(t *testing.T, listening string, broken fault.Op) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		p.Store.Set(fault.Refusing(broken))
		want := func(held, waiting, unreleased int, listening string) {
			t.Helper()
			synctest.Wait()
			s := p.Stats()
			if s.Held != held || s.Waiting != waiting || s.Unreleased != unreleased ||
				s.Listening != listening {
				t.Errorf("held %d, waiting %d, unreleased %d, listening %q; want %d, %d, %d, %q", s.Held,
					s.Waiting,
					s.Unreleased, s.Listening, held, waiting, unreleased, listening)
			}
			if again := p.Stats(); !maps.Equal(again.Commands, s.Commands) {
				t.Errorf("asking sent commands: %v, then %v", s.Commands, again.Commands)
			}
		}
		want(0, 0, 0, "")
		a, b := p.MustTry("a"), other.MustTry("b")
		want(1, 0, 0, "")
		ctx, giveUp := context.WithCancel(t.Context())
		go func() { _, _ = p.Lock("b").Lock(ctx) }()
		synctest.Wait()
		want(1, 1, 0, listening)
		time.Sleep(time.Hour)
		assert.Equal(t, p.Stats().OldestWait, time.Hour, "it has waited for %v, want 1h (%v)")
		giveUp()
		want(1, 0, 0, listening)
		time.Sleep(3 * pingTime)
		want(1, 0, 0, "")
		p.Store.Set(fault.Refusing(fault.Release))
		if err := a.Release(); err == nil {
			t.Fatal("released without a server")
		}
		want(0, 0, 1, "")
		p.Store.Set(nil)
		time.Sleep(2 * pingTime)
		want(0, 0, 0, "")
		_ = b.Release()
	})
}

// Stats counts each command once, by its kind. A listing of many locks counts as one command.
func TestStats_Commands_CountWhatIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		before := p.Stats().Commands
		if before["ping"] != p.Stats().Pings || before["ping"] == 0 {
			t.Errorf("%d pings counted, %d acknowledged", before["ping"], p.Stats().Pings)
		}
		if _, unnamed := before[""]; unnamed || len(before) != distlock.KindsOfCommands {
			t.Errorf("a kind without a name, or two with one: %v", before)
		}
		calls := p.Store.Total()
		g, rows := p.MustTry("a"), 0
		p.MustTry("b")
		_ = g.Release()
		for _, err := range p.Inspector().Locks(t.Context()) {
			assert.Must(t, err)
			rows++
		}
		after, sent := p.Stats().Commands, int64(0)
		for kind, n := range after {
			sent += n - before[kind]
		}
		if calls := int64(p.Store.Total() - calls); sent != calls ||
			after["release"]-before["release"] != 1 || after["list"]-before["list"] != 1 || rows != 2 {
			t.Errorf("%d commands counted, %d sent: %v, then %v", sent, calls, before, after)
		}
	})
}

// OldestWait does not count callers of the internal method Standby, because they wait as long as
// another holder lives.
func TestStats_OldestWait_LeavesOutWhoStandsBy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p, other := w.start(nil), w.start(nil)
		held := other.MustTry("a")
		ctx, giveUp := context.WithCancel(t.Context())
		want := func(waiting int, oldest time.Duration) {
			t.Helper()
			synctest.Wait()
			if s := p.Stats(); s.Waiting != waiting || s.OldestWait != oldest {
				t.Errorf("%d wait, for %v at most; want %d, %v", s.Waiting, s.OldestWait, waiting, oldest)
			}
		}
		standBy := func(n int) {
			for range n {
				go func() { _, _ = p.Internal(leading.Key{}).Standby("a").Lock(ctx) }()
			}
			synctest.Wait()
		}
		standBy(1)
		time.Sleep(time.Hour)
		want(1, 0)
		standBy(120) // more waiters than a lock document can contain
		time.Sleep(time.Hour)
		want(121, 0)
		mine, leave := context.WithCancel(ctx)
		go func() { _, _ = p.Lock("a").Lock(mine) }()
		time.Sleep(time.Hour)
		want(122, time.Hour)
		leave()
		want(121, 0)
		giveUp()
		want(0, 0)
		_ = held.Release()
	})
}
