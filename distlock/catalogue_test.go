package distlock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
	"mongodlm/takeover"
)

// This file tests faults of clocks and outages that no other test of this package covers.

// steppedClock is a clock with a wall clock that can be stepped. Its monotonic clock continues
// unchanged.
type steppedClock struct {
	clock.Clock
	mu   sync.Mutex // guards wall
	wall time.Duration
}

func (c *steppedClock) Now() clock.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.Clock.Now()
	return clock.Reading{Wall: r.Wall.Add(c.wall), Mono: r.Mono}
}

func (c *steppedClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
}

// A6, A7, A10: a forward step of the wall clock counts as elapsed time before any timer fires. A
// suspension that stops the monotonic clock looks the same. A backward step does not count.
func TestGuard_WallClockSteps_LargerElapsedCounts(t *testing.T) {
	for name, c := range map[string]struct {
		by   time.Duration
		lost bool
	}{
		"two hours ahead":        {2 * time.Hour, true},
		"suspended for 20 min":   {20 * time.Minute, true},
		"a little ahead":         {time.Minute, false},
		"two hours back":         {-2 * time.Hour, false},
		"back before 1970, even": {-100 * 365 * 24 * time.Hour, false},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			clk := &steppedClock{Clock: clock.System()}
			p := w.startBy(clk, nil)
			g := p.mustTry("a")
			clk.step(c.by)
			if !c.lost {
				time.Sleep(time.Hour)
				assert.NoErr(t, errors.Join(g.Err(), g.Context().Err()))
				return
			}
			wantErr(t, g.Err(), distlock.ErrLockLost)
			wantErr(t, context.Cause(g.Context()), distlock.ErrLockLost)
			time.Sleep(2 * pingTime)
			wantErr(t, g.Err(), distlock.ErrLockLost)
			if g := p.mustTry("b"); g.Err() != nil {
				t.Error("a new term did not begin")
			}
		})
	}
}

// ratedClock is a clock whose rate differs from true time.
type ratedClock struct {
	clock.Clock
	start clock.Reading
	rate  float64
}

func (w *world) startRated(rate float64) *proc {
	w.t.Helper()
	c := clock.System()
	return w.startBy(ratedClock{c, c.Now(), rate},
		func(cfg *distlock.Config) { cfg.TakeoverRule = takeover.WatchOnly })
}

func (c ratedClock) Now() clock.Reading {
	passed := time.Duration(float64(c.Clock.Now().Mono-c.start.Mono) * c.rate)
	return clock.Reading{Wall: c.start.Wall.Add(passed), Mono: passed}
}

func (c ratedClock) NewTimer(d time.Duration) clock.Timer {
	return ratedTimer{c.Clock.NewTimer(time.Duration(float64(d) / c.rate)), c.rate}
}

type ratedTimer struct {
	clock.Timer
	rate float64
}

func (t ratedTimer) Reset(d time.Duration) { t.Timer.Reset(time.Duration(float64(d) / t.rate)) }

// A8, A9: clocks run at different rates. Up to a ratio of 1.33, Takeover/(Takeover-Margin), the
// guard is lost before the takeover. Beyond that ratio, the guard is still trusted after the
// takeover.
func TestClocks_Rates_HolderLosesFirstUpToTheBound(t *testing.T) {
	for _, c := range []struct {
		holder, contender float64
		overlap           bool
	}{
		{1, 1, false}, {0.8, 1, false}, {0.76, 1, false}, {1, 1.3, false}, {1.3, 0.8, false},
		{0.6, 1, true},
	} {
		runInBubble(t, fmt.Sprintf("%v and %v", c.holder, c.contender), func(t *testing.T, w *world) {
			a, b := w.startRated(c.holder), w.startRated(c.contender)
			lost := a.mustTry("a")
			wantErr(t, assert.Err(b.try("a")), distlock.ErrHeld)
			a.kill()
			b.until("a", 5*time.Second, 2*takeoverTime)
			if overlap := lost.Err() == nil; overlap != c.overlap {
				t.Errorf("two guards are trusted: %v, want %v", overlap, c.overlap)
			}
		})
	}
}

// B5: a holder that recovers while the contender is stopped between its last read and its next
// write cannot be condemned. The holder keeps the lock.
func TestTryLock_HolderRecoversBeforeTheCondemning_IsLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		old := a.mustTry("a")
		before := w.doc("a")
		a.kill()
		var stopped, goesOn atomic.Bool // the command may outlive its caller
		b.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			switch {
			case call.Op == fault.Condemn && stopped.CompareAndSwap(false, true):
				a.store.Set(nil)
				time.Sleep(10 * time.Minute)
				goesOn.Store(true)
			case stopped.Load() && !goesOn.Load():
				return fault.Refused(call.Op)
			}
			return apply()
		})
		for start := time.Now(); !stopped.Load() &&
			time.Since(start) < 2*takeoverTime; time.Sleep(10 * time.Second) {
			if err := assert.Err(b.try("a")); !stopped.Load() {
				wantErr(t, err, distlock.ErrHeld)
			}
		}
		time.Sleep(11 * time.Minute)
		if !stopped.Load() || !bytes.Equal(before, w.doc("a")) {
			t.Errorf("stopped: %v, document %v", stopped.Load(), w.doc("a"))
		}
		wantErr(t, old.Err(), distlock.ErrLockLost) // its deadline had passed before
		if a.Stats().Processes != 0 {
			t.Error("the holder's session is over")
		}
	})
}

// B10: a guard ends at its deadline even if a ping never returns.
func TestGuard_PingHangs_EndsAtTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		stuck := make(chan struct{})
		p.store.Set(func(_ context.Context, call fault.Call, _ func() error) error {
			if call.Op == fault.Ping {
				<-stuck // the command ignores its context
			}
			return fault.Refused(call.Op)
		})
		time.Sleep(time.Until(g.Deadline()) + time.Millisecond)
		synctest.Wait()
		wantErr(t, context.Cause(g.Context()), distlock.ErrLockLost)
		close(stuck)
	})
}

// E8: repeated elections delay the takeover of a dead holder's lock, and the error reports them. A
// living holder keeps its lock.
func TestTryLock_ElectionsWithoutEnd_LivingKeepAndDeadStay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		only := func(cfg *distlock.Config) { cfg.TakeoverRule = takeover.WatchOnly }
		dead, alive, b := w.start(nil), w.start(nil), w.start(only)
		dead.mustTry("dead")
		g := alive.mustTry("alive")
		dead.kill()
		for i := range 2 * int(takeoverTime/(5*time.Second)) {
			w.mem.SetPrimary(fmt.Sprint("term ", i))
			_, err := b.try("dead")
			if h := held(t, err); i > 0 && !strings.Contains(h.Reason, "primary") {
				t.Fatalf("reason: %s", h.Reason)
			}
			time.Sleep(5 * time.Second)
		}
		assert.NoErr(t, g.Err())
		b.until("dead", 10*time.Second, takeoverTime+time.Minute)
	})
}

// D13: processes reconnect at the same instant after an outage that is longer than the takeover
// time. One of them acquires the lock, and each process sends only the commands of its polls.
func TestLock_ManyComeBackFromAnOutage_OneWins(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		const many, after = 100, 30 * time.Second
		procs := make([]*proc, many)
		got := make(chan *distlock.TryGuard, many)
		var waiting sync.WaitGroup
		for i := range procs {
			p := w.start(nil)
			p.kill()
			procs[i] = p
			waiting.Go(func() {
				g, err := p.Lock("a").Lock(t.Context(), distlock.WaitAtMost(takeoverTime+after))
				if err == nil {
					got <- g
				} else if !errors.Is(err, distlock.ErrHeld) && !errors.Is(err, distlock.ErrNoHeartbeat) {
					t.Error(err)
				}
			})
		}
		time.Sleep(takeoverTime)
		before := make([]int, many)
		for i, p := range procs {
			p.store.Set(nil)
			before[i] = p.store.Total()
		}
		waiting.Wait()
		for i, p := range procs {
			if n := p.store.Total() - before[i]; n > 60 {
				t.Errorf("process %d sent %d commands in %v", i, n, after)
			}
		}
		assert.MustEqual(t, len(got), 1, "%d guards, want %d")
		if g := <-got; g.Err() != nil || w.lock("a").TS != g.Session() {
			t.Errorf("guard: %v, document %v", g.Err(), w.doc("a"))
		}
	})
}

// G8: New returns an error if the client or the context is missing or a deadline has passed.
func TestNew_NothingToWorkWith_IsAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		_, err := distlock.New(t.Context(), distlock.Config{})
		wantErr(t, err, distlock.ErrConfig)
		var none context.Context
		_, err = distlock.New(none, distlock.Config{Catalog: w.mem})
		wantErr(t, err, distlock.ErrBadOption)
		past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		_, err = distlock.New(past, distlock.Config{Catalog: w.mem})
		wantErr(t, err, context.DeadlineExceeded)
		_, err = w.start(nil).Lock("a").TryLock(past)
		wantErr(t, err, context.DeadlineExceeded)
	})
}

// H1: two processes with the same host and process number have different ids, and both work.
func TestNew_SameHostAndPid_IdsDiffer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		if a.Process() == b.Process() {
			t.Fatalf("both are %s", a.Process())
		}
		g, h := a.mustTry("a"), b.mustTry("b")
		time.Sleep(time.Hour)
		assert.NoErr(t, errors.Join(g.Err(), h.Err()))
	})
}

// H5: a session of another process with the same ts is not accepted as the session of this process.
func TestGuard_Check_SameSessionOfAnotherProcess_IsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		g := p.mustTry("a")
		err := w.mem.Put(catalog.LocksCollection, bson.D{
			{Key: "_id", Value: "a"}, {Key: "state", Value: int32(1)}, {Key: "process", Value: "other"},
			{Key: "ts", Value: g.Session()}, {Key: "fence", Value: g.Fence() + 1}})
		assert.Must(t, err)
		wantErr(t, g.Verify(t.Context()), distlock.ErrLockLost)
	})
}

// H6: New returns an error without a source of randomness. The test is not parallel, because the
// source is shared.
func TestNew_NoRandomness_IsAnError(t *testing.T) {
	empty := errors.New("the source is dry")
	uuid.SetRand(dry{empty})
	defer uuid.SetRand(nil)
	synctest.Test(t, func(t *testing.T) {
		_, err := distlock.New(t.Context(),
			distlock.Config{Catalog: memcatalog.New(memcatalog.Options{}), Host: "host"})
		wantErr(t, err, empty)
	})
}

type dry struct{ err error }

func (d dry) Read([]byte) (int, error) { return 0, d.err }

// I4: if an acquire is applied after its process has died, the lock is taken over after the
// takeover time.
func TestTryLock_AppliedAfterDeath_IsTakenOver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.start(nil), w.start(nil)
		var late func() error
		a.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Acquire {
				late = apply
				return fault.Lost(call.Op)
			}
			return fault.Refused(call.Op)
		})
		wantErr(t, assert.Err(a.try("a")), distlock.ErrOutcomeUnknown)
		a.kill()
		if err := late(); err != nil || !w.lock("a").Held {
			t.Fatalf("not applied: %v", err)
		}
		g, took := b.until("a", 10*time.Second, takeoverTime+time.Minute)
		if g.TakeoverEvidence() == "" || took < takeoverTime-pingTime {
			t.Errorf("took %v, evidence %q", took, g.TakeoverEvidence())
		}
	})
}

// I10, I11, F22: if the server's reply contradicts the document of the next read, the next round
// acquires the lock. If every reply does so, the number of tries is bounded.
func TestTryLock_AnswerDoesNotFitTheDocument_TriesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		op    fault.Op
		err   error
		times int
		got   bool
	}{
		"evict once not matched": {fault.Evict, catalog.ErrNoMatch, 1, true},
		"acquire once not free":  {fault.Acquire, catalog.ErrNotFree, 1, true},
		"acquire never free":     {fault.Acquire, catalog.ErrNotFree, 1 << 30, false},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			p := w.start(nil)
			if c.op == fault.Evict {
				plantDead(t, w, "a", "dead")
			}
			n := 0
			p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
				entering := c.op == fault.Acquire && call.Op == fault.Enter
				if (call.Op == c.op || entering) && n < c.times {
					n++
					return c.err
				}
				return apply()
			})
			_, err := p.try("a")
			if (err == nil) != c.got || n > 10 {
				t.Errorf("after %d refusals: %v, want a guard: %v", n, err, c.got)
			}
		})
	}
}

// J9: a logger's panic stops neither the pings nor the guard.
func TestManager_LoggerPanics_PingsGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(func(cfg *distlock.Config) {
			cfg.Logger = zerolog.New(panicking{}).Level(zerolog.WarnLevel)
		})
		g := p.mustTry("a")
		failed := 0
		p.store.Set(func(_ context.Context, call fault.Call, apply func() error) error {
			if call.Op == fault.Ping && failed < 3 {
				failed++
				return fault.Refused(call.Op)
			}
			return apply()
		})
		time.Sleep(time.Hour)
		if err := g.Err(); err != nil || p.Stats().Panics == 0 {
			t.Errorf("guard: %v, %+v", err, p.Stats())
		}
	})
}

type panicking struct{}

func (panicking) Write([]byte) (int, error) { panic("on purpose") }

// A15, F7: log lines are valid JSON with escaped strings for all values in the documents.
func TestLog_ExtremeDocuments_LinesStayJSON(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var lines assert.Log
		p := w.start(func(cfg *distlock.Config) {
			cfg.Logger, cfg.TakeoverRule = zerolog.New(&lines).Level(zerolog.DebugLevel), takeover.WatchOnly
		})
		far := bson.DateTime(1<<63 - 1)
		err := errors.Join(
			w.mem.Put(catalog.LocksCollection, bson.D{
				{Key: "_id", Value: "a"}, {Key: "state", Value: int32(1)},
				{Key: "process", Value: "dead\n\x1b[2J"},
				{Key: "why", Value: "two\nlines \x1b[31m" + strings.Repeat("x", 1<<20)},
				{Key: "when", Value: far},
				{Key: "ts", Value: bson.NewObjectID()}, {Key: "fence", Value: int64(1 << 40)}}),
			w.mem.Put(catalog.PingsCollection, bson.D{{Key: "_id", Value: "dead\n\x1b[2J"},
				{Key: "ping", Value: far}, {Key: "local", Value: far}, {Key: "seq", Value: int64(7)}}))
		assert.Must(t, err)
		_, err = p.try("a")
		if text := held(t, err).Error(); strings.ContainsAny(text, "\n\x1b") || len(text) > 3000 {
			t.Errorf("%d bytes: %.200q", len(text), text)
		}
		p.until("a", 10*time.Second, takeoverTime+time.Minute)
		assert.NoErr(t, p.Close(t.Context()))
		if !strings.Contains(lines.String(), "taken over") {
			t.Errorf("nothing was logged:\n%s", &lines)
		}
		for line := range strings.Lines(lines.String()) {
			if !json.Valid([]byte(line)) || strings.Contains(line, "\x1b") {
				t.Errorf("no line of JSON: %q", line)
			}
		}
	})
}

// F13: names that differ in case, Unicode form or spaces are different locks, in the listing too.
func TestLocks_NamesThatLookAlike_AreListedApart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(nil)
		names := []string{"\u00e9", "e\u0301", "lock", "Lock", "lock "}
		for _, name := range names {
			p.mustTry(name)
		}
		seen := map[string]bool{}
		for info, err := range p.Inspector().Locks(t.Context()) {
			assert.Must(t, err)
			seen[info.Name] = info.Held
		}
		for _, name := range names {
			if !seen[name] {
				t.Errorf("%+q is not listed as held: %v", name, seen)
			}
		}
	})
}
