package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/fault"
)

// A process is one start of one of the processes of a schedule. Its fields belong to the loop of
// the world, except those that say otherwise.
type process struct {
	w     *world
	index int
	life  int // 1 for the first in its place
	spec  Process
	clock *processClock
	port  *port

	snapshot *snapshot // from which it was restored; nil when it was not

	ctx  context.Context // of its users
	stop context.CancelFunc
	gone bool // guarded by world.mu: its goroutine has ended

	dead     bool
	closing  *closing      // since Close was called by a fault
	resumed  time.Duration // when it last ran again
	misled   time.Duration // when it was last shown an old picture
	paused   int           // number of pauses under way
	waiting  []func()      // what happens when it runs again
	calls    int
	opCalls  map[fault.Op]int
	struck   int // faults that struck its commands
	cut      time.Duration
	deaf     time.Duration
	hang     time.Duration
	old      time.Duration // until when its reads are old
	oldSince time.Duration
	oldName  string

	mu      sync.Mutex    // guards what follows
	shut    bool          // Close was called by a fault: its users stop
	closed  chan struct{} // closed when that Close has returned
	buried  bool          // every command fails at once
	frozen  bool          // paused or dead: it cannot notice that a context ended
	manager *distlock.Manager
	ids     []string // process ids it has used
	twin    string   // process id that stands for its first one
	met     bool     // it was told of its twin
	open    []*call  // commands without an answer
}

func newProcess(w *world, i int) *process {
	p := &process{w: w, index: i, life: 1, spec: w.s.Processes[i], opCalls: map[fault.Op]int{}}
	if before := w.slots[i]; before != nil {
		p.life = before.life + 1
	}
	rate := p.spec.Rate
	if rate == 0 {
		rate = 1
	}
	p.clock = &processClock{p: p, rate: rate, wall: p.spec.Offset}
	p.port = &port{Catalog: w.mem, p: p}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if p.spec.Twin && p.life == 1 {
		p.twin = w.slots[i-1].id()
		if p.spec.Snapshot {
			p.snapshot = w.snapshotOf(p.twin)
		}
	}
	return p
}

func (p *process) String() string {
	return letter(p.index) + strings.Repeat("'", p.life-1)
}

// config is what the process is configured with.
func (p *process) config() distlock.Config {
	t := p.w.s.Timing
	if p.spec.Takeover != 0 {
		t.Takeover = p.spec.Takeover
	}
	if p.spec.Margin != 0 {
		t.Margin = p.spec.Margin
	}
	return distlock.Config{
		Catalog: p.port, Host: letter(p.index), Logger: zerolog.Nop(),
		Ping: t.Ping, Takeover: t.Takeover, Margin: t.Margin, Poll: t.Poll, PollMax: t.PollMax,
		CommandTimeout: t.Limit,
		Tuning:         distlock.Tuning{MaxWatchGap: t.MaxGap, ForeignTakeover: t.Foreign, TakeoverRule: t.Mode},
	}
}

// live is the whole life of a process: it starts its Manager, lets its users work until the run
// ends, and closes.
func (p *process) live() {
	var m *distlock.Manager
	for {
		var err error
		if m, err = distlock.New(clock.With(p.ctx, p.clock), p.config()); err == nil {
			break
		}
		if errors.Is(err, distlock.ErrConfig) {
			panic("simulation: " + p.w.s.Name + ": " + err.Error())
		}
		if p.ctx.Err() != nil || !clock.Sleep(p.clock, time.Second, p.ctx.Done()) {
			return
		}
	}
	p.mu.Lock()
	p.manager = m
	p.mu.Unlock()
	var users sync.WaitGroup
	for i, work := range p.spec.Users {
		u := &User{p: p, m: m, label: fmt.Sprintf("user%d", i)}
		u.Chance = rand.New(rand.NewPCG(p.w.s.Seed, uint64(p.index)<<32|uint64(p.life)<<16|uint64(i)))
		users.Go(func() { work(u) }) // ends with p.ctx
	}
	users.Wait()
	if p.spec.Every > 0 && p.ctx.Err() == nil {
		p.w.at(p.w.now(), p.index, func() { p.whenRunning(func() { p.close(p.w.s.Timing.Limit) }) })
	}
	<-p.ctx.Done()
	p.mu.Lock()
	first := p.closed
	p.mu.Unlock()
	if first != nil { // a fault has closed it
		<-first
	}
	p.w.log.told("%s closes", p)
	if err := m.Close(context.Background()); err != nil {
		p.w.log.told("%s closed: %v", p, err)
	}
}

// id returns the process id under which the process pings; the first one before it has.
func (p *process) id() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ids) == 0 {
		return ""
	}
	return p.ids[len(p.ids)-1]
}

// before returns the process id that it had used before that one; empty when there is none, and while
// it starts: a start that failed is tried again with another.
func (p *process) before(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.ids, id); i > 0 && p.manager != nil {
		return p.ids[i-1]
	}
	return ""
}

// named reports whether the process has used that process id.
func (p *process) named(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, own := range p.ids {
		if own == id {
			return true
		}
	}
	return false
}

// leaves reports whether a release of a session is on its way.
func (p *process) leaves(ts bson.ObjectID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.open, func(c *call) bool {
		return c.op == fault.Release && c.ts == ts
	})
}

// alias notes the process id under which the process sends a command, and returns the one that the
// store sees.
func (p *process) alias(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.twin != "" && (len(p.ids) == 0 || p.ids[0] == id) {
		if len(p.ids) == 0 {
			p.ids = append(p.ids, id)
		}
		return p.twin
	}
	if id != "" && (len(p.ids) == 0 || p.ids[len(p.ids)-1] != id) {
		p.ids = append(p.ids, id)
	}
	return id
}

// whenRunning runs something that the process notices: at once, or when it runs again; for a dead
// one when it is buried, so that its goroutines can end.
func (p *process) whenRunning(do func()) {
	switch {
	case p.isBuried():
		do()
	case p.dead || p.paused > 0:
		p.waiting = append(p.waiting, do)
	default:
		do()
	}
}

func (p *process) isBuried() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buried
}

func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = p.dead || p.paused > 0
}

// crash kills the process as far as anybody else can see. Its goroutines end with the run.
func (p *process) crash() {
	if p.dead {
		return
	}
	p.w.log.add("%s dies", p)
	p.dead = true
	p.freeze()
}

// pause stops the process for d; suspended: with its monotonic clock.
func (p *process) pause(d time.Duration, suspended bool) {
	if p.dead {
		return
	}
	p.paused++
	p.freeze()
	how := "stops"
	if suspended {
		how = "is suspended"
		p.clock.suspend(true)
	}
	p.w.log.add("%s %s for %v", p, how, d)
	resumed := false
	resume := func() {
		if resumed || p.dead {
			return
		}
		resumed = true
		p.w.log.add("%s runs again", p)
		if suspended {
			p.clock.suspend(false)
		}
		p.resume()
	}
	p.w.after(d, resume)
}

func (p *process) resume() {
	if p.paused == 0 {
		return
	}
	p.paused--
	p.freeze()
	if p.paused > 0 {
		return
	}
	p.resumed = p.w.now()
	waiting := p.waiting
	p.waiting = nil
	for _, do := range waiting {
		p.w.at(p.w.now(), p.index, func() { p.whenRunning(do) })
	}
}

// heal ends what troubles the process.
func (p *process) heal() {
	p.cut, p.deaf, p.hang, p.old = 0, 0, 0, 0
	if p.dead {
		return
	}
	p.clock.suspend(false)
	for p.paused > 0 {
		p.resume()
	}
}

// A closing is a call of Close that a fault made.
type closing struct {
	since time.Duration
	mono  time.Duration // the same by the clock of the process
	limit time.Duration // of its context; 0: it had ended

	done bool // guarded by the process's mu, like err
	err  error
	at   time.Duration // when it returned
	seen bool          // the oracle has
}

// close closes the process in order, beside whatever its users do.
func (p *process) close(limit time.Duration) {
	p.mu.Lock()
	m := p.manager
	p.shut = m != nil
	p.mu.Unlock()
	if m == nil || p.closing != nil {
		return
	}
	c := &closing{since: p.w.now(), mono: p.clock.Now().Mono, limit: limit}
	p.closing = c
	first := make(chan struct{})
	p.mu.Lock()
	p.closed = first
	p.mu.Unlock()
	go func() { // ends with Close
		defer close(first)
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		err := m.Close(ctx)
		p.w.log.told("%s has closed: %v", p, err)
		p.mu.Lock()
		defer p.mu.Unlock()
		c.done, c.err, c.at = true, err, p.w.now()
	}()
}

// over reports whether the process is dead, or has closed.
func (p *process) over() bool {
	if p.dead || p.closing == nil {
		return p.dead
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closing.done
}

// bury lets the goroutines of a process end: every command fails at once from now on.
func (p *process) bury() {
	p.mu.Lock()
	p.buried, p.frozen = true, false
	open := p.open
	p.open = nil
	p.mu.Unlock()
	p.clock.suspend(false)
	p.stop()
	for _, c := range open {
		c.finish(fault.Refused(c.op))
	}
	waiting := p.waiting
	p.waiting = nil
	for _, do := range waiting {
		do()
	}
	p.w.poke()
}
