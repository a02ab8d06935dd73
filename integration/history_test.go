package integration_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

var histories = flag.Int("histories", 6+effort.Share(14), "how many histories are recorded on the "+
	"embedded server and checked; fewer on each other deployment")

// What a lock with fences can be asked. Trust is a guard that says of itself that it may be
// trusted.
type lockOp string

const (
	opAcquired lockOp = "acquired" // with this fence
	opTrusted  lockOp = "trusted"
	opEnded    lockOp = "ended"    // released, or found lost
	opNobody   lockOp = "no guard" // an attempt whose outcome nobody told: it made no guard
)

// A lockEvent is the input of an operation, and its output, which is known when it is recorded.
type lockEvent struct {
	Lock    string
	Op      lockOp
	Session string
	Fence   int64
}

type lockState struct {
	session string // of the guard that is trusted; empty when there is none
	fence   int64  // the largest so far
}

// lockModel is a lock with fences: it is acquired only when no earlier guard of its name is trusted
// any more, and its fence rises.
var lockModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		at := map[string]int{}
		var parts [][]porcupine.Operation
		for _, o := range history {
			name := o.Input.(lockEvent).Lock
			if _, ok := at[name]; !ok {
				at[name] = len(parts)
				parts = append(parts, nil)
			}
			parts[at[name]] = append(parts[at[name]], o)
		}
		return parts
	},
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, e := state.(lockState), input.(lockEvent)
		switch e.Op {
		case opAcquired:
			return s.session == "" && e.Fence > s.fence, lockState{e.Session, e.Fence}
		case opTrusted:
			return s.session == e.Session, s
		case opEnded:
			return s.session == e.Session, lockState{"", s.fence}
		}
		return true, s
	},
	DescribeOperation: func(input, _ any) string {
		e := input.(lockEvent)
		return fmt.Sprintf("%s %s %s fence %d", e.Lock, e.Op, e.Session, e.Fence)
	},
}

// A recorder keeps the history of one run, by the one monotonic clock of this program.
type recorder struct {
	start time.Time

	mu      sync.Mutex // guards history
	history []porcupine.Operation
}

func (r *recorder) now() int64 { return int64(time.Since(r.start)) }

func (r *recorder) add(client int, e lockEvent, call, end int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history,
		porcupine.Operation{ClientId: client, Input: e, Call: call, Return: end})
}

// count returns how many operations have been recorded.
func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.history)
}

// seal ends the operations that are still open.
func (r *recorder) seal() []porcupine.Operation {
	end := r.now()
	for i := range r.history {
		r.history[i].Return = min(r.history[i].Return, end)
	}
	return r.history
}

const open = 1<<63 - 1 // the end of an operation whose outcome stays unknown

// linearizable checks a history and draws it if it is not.
func linearizable(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(lockModel, history, 30*time.Second)
	if result == porcupine.Ok {
		return
	}
	path := filepath.Join(t.ArtifactDir(), "history.html")
	assert.NoErr(t, porcupine.VisualizePath(lockModel, info, path))
	t.Errorf("%s: this history of %d operations is that of no lock; keep it with -artifacts: %s",
		result, len(history), path)
}

const (
	historyProcesses = 3
	historyNames     = 2
	historyLeast     = 100 // operations
	historyLimit     = 3 * time.Minute
	historyTakeover  = 3 * time.Second
	historiesAtOnce  = 2 // in one world: they mostly wait
)

// I1, I2, I4: histories of real processes, on links that break, stall and lose replies, are those
// of a lock with fences.
func TestHistories_AreThoseOfALock(t *testing.T) {
	t.Parallel()
	var checked, operations, takeovers, faults atomic.Int64
	t.Run("runs", func(t *testing.T) {
		for run := range (*histories + historiesAtOnce - 1) / historiesAtOnce {
			these := named("embedded")
			if run%8 == 0 {
				these = wired
			}
			t.Run(fmt.Sprintf("%03d", run), func(t *testing.T) {
				t.Parallel()
				forThese(t, these, func(t *testing.T, w *world) {
					var recorded []*historyRun
					var playing sync.WaitGroup
					for n := range historiesAtOnce {
						h := w.cast(t, fmt.Sprintf("play-%d-", n))
						recorded = append(recorded, h)
						playing.Go(func() { h.play(t.Context()) })
					}
					playing.Wait()
					for _, h := range recorded {
						history := h.seal()
						if len(history) < historyLeast { // on a machine that is busy elsewhere
							t.Logf("%d operations in %v, want %d", len(history), historyLimit, historyLeast)
						}
						linearizable(t, history)
						checked.Add(1)
						operations.Add(int64(len(history)))
						takeovers.Add(h.takeovers.Load())
						faults.Add(h.faults.Load())
					}
				})
			})
		}
	})
	t.Logf("%d histories of %d operations, %d takeovers, %d faults", checked.Load(), operations.Load(),
		takeovers.Load(), faults.Load())
	if least := checked.Load() * historyLeast / 2; operations.Load() < least {
		t.Errorf("%d operations, want %d: too little was tested", operations.Load(), least)
	}
	if *histories > 4 && (faults.Load() == 0 || takeovers.Load() == 0) {
		t.Errorf("%d faults and %d takeovers: nothing was tested", faults.Load(), takeovers.Load())
	}
}

// The checker has teeth: histories that are those of no lock are refused, and drawn.
func TestHistories_OfNoLock_AreRefused(t *testing.T) {
	t.Parallel()
	at := func(call, end int64, op lockOp, session string, fence int64) porcupine.Operation {
		return porcupine.Operation{Input: lockEvent{"a", op, session, fence}, Call: call, Return: end}
	}
	good := []porcupine.Operation{
		at(0, 10, opAcquired, "x", 1), at(11, 12, opTrusted, "x", 1), at(11, 30, opEnded, "x", 1),
		at(5, 40, opNobody, "", 0), at(20, 40, opAcquired, "y", 2), at(41, 42, opTrusted, "y", 2),
	}
	assert.Equal(t, porcupine.CheckOperationsTimeout(lockModel, good, time.Minute), porcupine.Ok,
		"a good history: %s, want %s")
	with := func(i int, o porcupine.Operation) []porcupine.Operation {
		return slices.Concat(good[:i], []porcupine.Operation{o}, good[min(i+1, len(good)):])
	}
	for name, bad := range map[string][]porcupine.Operation{
		"two holders":         slices.Concat(good[:2], good[4:]),
		"the fence falls":     with(4, at(20, 40, opAcquired, "y", 1)),
		"trusted too long":    with(len(good), at(41, 42, opTrusted, "x", 1)),
		"lost after takeover": with(2, at(41, 60, opEnded, "x", 1)),
	} {
		t.Run(name, func(t *testing.T) {
			result, info := porcupine.CheckOperationsVerbose(lockModel, bad, time.Minute)
			if result != porcupine.Illegal {
				t.Errorf("%s, want it refused", result)
			}
			assert.NoErr(t, porcupine.VisualizePath(lockModel, info, filepath.Join(t.TempDir(), "h.html")))
		})
	}
}

// A historyRun is a history in the making.
type historyRun struct {
	recorder
	w                 *world
	names             string // what the names of its locks begin with
	players           []*player
	takeovers, faults atomic.Int64
}

// A player is one process of it, at the end of a link that goes bad.
type player struct {
	h       *historyRun
	client  int
	m       *distlock.Manager
	link    *link
	clings  atomic.Bool // it gives no lock back by itself
	holding atomic.Bool
}

// cast starts the processes of a history.
func (w *world) cast(t *testing.T, names string) *historyRun {
	h := &historyRun{recorder: recorder{start: time.Now()}, w: w, names: w.name(names)}
	for client := range historyProcesses {
		p := &player{h: h, client: client, link: w.d.through(t)}
		cfg := w.config()
		cfg.Client, cfg.PingClient = nil, nil
		cfg.ClientOptions = options.Client().ApplyURI(p.link.uri())
		cfg.Ping, cfg.Takeover, cfg.Margin = historyTakeover/5, historyTakeover, historyTakeover/5
		cfg.MaxWatchGap, cfg.CommandTimeout = historyTakeover*2/3, 2*time.Second
		cfg.ReleaseTries = 1
		p.m = newManager(t, cfg)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
			defer cancel()
			if err := p.m.Close(ctx); err != nil { // the server may be slow
				t.Logf("closing: %v", err)
			}
		})
		h.players = append(h.players, p)
	}
	return h
}

// play lets the processes contend until the history is long enough and all faults have happened.
func (h *historyRun) play(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, historyLimit)
	defer cancel()
	var clients, links sync.WaitGroup
	linksDone := make(chan struct{})
	for _, p := range h.players {
		links.Go(func() { p.spoil(ctx) })
		clients.Go(func() {
			for ctx.Err() == nil && !(closed(linksDone) && h.count() >= historyLeast) {
				p.turn(ctx, fmt.Sprintf("%s%d", h.names, rand.IntN(historyNames)))
			}
		})
	}
	links.Wait()
	close(linksDone)
	clients.Wait()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// spoil lets single messages meet with mishaps, and breaks the link for longer than the takeover
// time while the process holds a lock.
func (p *player) spoil(ctx context.Context) {
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	defer p.link.set(passing)
	for _, op := range []string{"acquire", "enter", "swap", "release", "ping", "overtake", "confirm"} {
		what, called := replyLost, "reply lost"
		if rand.IntN(2) == 0 {
			what, called = requestCut, "request cut"
		}
		before := p.link.hit(op)
		p.link.first(op, what)
		pause(80 * time.Millisecond)
		if p.link.hit(op) > before {
			p.h.faults.Add(1)
			injected.add(p.h.w.d.name, called, "history")
		}
	}
	p.link.befall(nil)
	mode, called := cut, "cut"
	switch p.client {
	case 0:
		return // somebody must be there to take over
	case 1:
		mode, called = stalling, "replies stalled"
	}
	p.clings.Store(true)
	for ctx.Err() == nil && !p.holding.Load() {
		pause(5 * time.Millisecond)
	}
	p.link.set(mode)
	p.h.faults.Add(1)
	injected.add(p.h.w.d.name, called, "history")
	before, until := p.h.takeovers.Load(), time.Now().Add(4*historyTakeover)
	for ctx.Err() == nil && (p.holding.Load() ||
		p.h.takeovers.Load() == before && time.Now().Before(until)) {
		pause(20 * time.Millisecond)
	}
	p.clings.Store(false)
}

// acquire tries a lock once, or waits for it for a while in its line.
func (p *player) acquire(ctx context.Context, name string) (*distlock.TryGuard, error) {
	if rand.IntN(2) == 0 {
		return p.m.Lock(name).TryLock(ctx)
	}
	most := time.Duration(rand.Int64N(int64(2 * historyTakeover)))
	return p.m.Lock(name).Lock(ctx, distlock.WaitAtMost(most))
}

// turn acquires a lock, and holds it for a moment, or until it is lost if it clings.
func (p *player) turn(ctx context.Context, name string) {
	h, e := p.h, lockEvent{Lock: name, Op: opAcquired}
	add := func(op lockOp, call, end int64) {
		h.add(p.client, lockEvent{name, op, e.Session, e.Fence}, call, end)
	}
	call := h.now()
	g, err := p.acquire(ctx, name)
	if errors.Is(err, distlock.ErrOutcomeUnknown) {
		add(opNobody, call, open)
	}
	if err != nil {
		select { // others hold it, or there is no server
		case <-time.After(time.Duration(50+rand.IntN(100)) * time.Millisecond):
		case <-ctx.Done():
		}
		return
	}
	h.w.keep(g)
	e.Session, e.Fence = g.Session().Hex(), g.Fence()
	add(opAcquired, call, h.now())
	if g.TakeoverEvidence() != "" {
		h.takeovers.Add(1)
	}
	p.holding.Store(true)
	defer p.holding.Store(false)
	since := call // when it was trusted last
	hold := time.Now().Add(time.Duration(rand.IntN(30)) * time.Millisecond)
	for p.clings.Load() || time.Now().Before(hold) {
		asked := h.now()
		if g.Err() != nil {
			break
		}
		add(opTrusted, asked, h.now())
		since = asked
		select { // work
		case <-time.After(20 * time.Millisecond):
		case <-g.Context().Done():
		}
	}
	_ = g.Release() // whatever comes of it, the guard is over
	add(opEnded, since, h.now())
}
