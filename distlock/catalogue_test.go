package distlock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/fault"
	"mongodlm/takeover"
)

// The tests in this file use wrong clocks, long outages, and replies that contradict the documents.

// A steppedClock has a wall clock that tests can step. Its monotonic clock does not step.
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

// If the wall clock steps past a guard's deadline, for example after the machine was suspended, the
// guard is lost at once. A step back has no effect.
func TestGuard_WallClockSteps_LargerElapsedCounts(t *testing.T) { // A6, A7, A10
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

// If a holder pings again just before a contender condemns it, the contender's write matches
// nothing. The lock document does not change.
func TestTryLock_HolderRecoversBeforeTheCondemning_IsLeftAlone(t *testing.T) { // B5
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
			t.Error("the holder took a new process id")
		}
	})
}

// A guard is lost at its deadline even if a ping never returns.
func TestGuard_PingHangs_EndsAtTheDeadline(t *testing.T) { // B10
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

// A hundred processes reconnect at the same instant, after an outage that is longer than the
// takeover time. One process acquires the lock. In the next 30 s each process sends at most 60
// commands.
func TestLock_ManyComeBackFromAnOutage_OneWins(t *testing.T) { // D13
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

// New returns an error if the client or the context is missing, or if the context has expired.
func TestNew_NothingToWorkWith_IsAnError(t *testing.T) { // G8
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

// If another process holds the lock under the same session, Verify returns ErrLockLost.
func TestGuard_Check_SameSessionOfAnotherProcess_IsLost(t *testing.T) { // H5
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

// If the server's reply to a write contradicts the lock document, TryLock repeats the write. It
// gives up after a bounded number of tries.
func TestTryLock_AnswerDoesNotFitTheDocument_TriesAgain(t *testing.T) { // I10, I11, F22
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

// Even if a document contains extreme values, log lines are valid JSON, and error texts are short
// and have one line.
func TestLog_ExtremeDocuments_LinesStayJSON(t *testing.T) { // A15, F7
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
				t.Errorf("not JSON: %q", line)
			}
		}
	})
}
