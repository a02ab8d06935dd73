package integration_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/distlock"
)

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
		eventually(t, 2*time.Minute, "the process starts on a slow machine", func() (ok bool) {
			var err error
			p.m, err = distlock.New(t.Context(), cfg)
			return err == nil
		})
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
	for ctx.Err() == nil && (p.holding.Load() || p.h.takeovers.Load() == before && time.Now().Before(until)) {
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
	return p.m.Lock(name).Lock(ctx, distlock.WaitAtMost(most), distlock.Holding())
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
