package simulation

import (
	"cmp"
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
	"mongodlm/internal/test/fault"
	"mongodlm/internal/test/virtual"
)

// A process is a simulated process. Only the event loop uses the fields that mu does not guard.
type process struct {
	*virtual.Process
	w          *world
	generation int // 1 for the first process in its place
	spec       Process
	port       *port

	ctx  context.Context // context of its users
	stop context.CancelFunc

	closing     *closing      // the call of Close before the end of the run, or nil; set under mu
	lastOldRead time.Duration // time of its last read of an old state
	calls       int
	faults      int // number of faults that struck its commands
	cutUntil    time.Duration
	deafUntil   time.Duration
	hangUntil   time.Duration
	oldUntil    time.Duration // until this time its reads return oldPrimary
	oldPrimary  oldState

	mu      sync.Mutex // guards the rest
	manager *distlock.Manager
	ids     []string // process ids that it has used
	open    []*call  // unanswered commands
}

func newProcess(w *world, i int) *process {
	spec := w.s.Processes[i]
	p := &process{Process: w.NewProcess(i, cmp.Or(spec.Rate, 1)), w: w, generation: 1, spec: spec}
	if before := w.slots[i]; before != nil {
		p.generation = before.generation + 1
	}
	p.Clock.Step(p.spec.Offset)
	if w.s.Seed != 0 {
		p.Clock.Chance = p.jitter
	}
	p.port = newPort(p)
	p.ctx, p.stop = context.WithCancel(background)
	return p
}

func (p *process) jitter() float64 {
	const bits = 1 << 53
	return float64(p.w.chance("jitter", p.w.Now(), uint64(p.Index))%bits) / bits
}

func (p *process) String() string {
	return letter(p.Index) + strings.Repeat("'", p.generation-1)
}

func (p *process) config() distlock.Config {
	t := p.w.s.Timing
	return distlock.Config{
		Catalog: p.port, Host: letter(p.Index), Logger: zerolog.Nop(),
		Ping: t.Ping, Takeover: t.Takeover, Margin: t.Margin, Poll: t.Poll, PollMax: t.PollMax,
		CommandTimeout: t.Limit,
		Tuning: distlock.Tuning{
			MaxWatchGap: t.MaxGap, ForeignTakeover: t.Foreign, TakeoverRule: t.Mode,
		},
	}
}

// run creates the Manager, runs the users until the end of the run, and closes the Manager.
func (p *process) run() {
	var m *distlock.Manager
	for {
		var err error
		if m, err = distlock.New(clock.With(p.ctx, p.Clock), p.config()); err == nil {
			break
		}
		if errors.Is(err, distlock.ErrConfig) {
			panic("simulation: " + p.w.s.Name + ": " + err.Error())
		}
		if p.ctx.Err() != nil || !clock.Sleep(p.Clock, time.Second, p.ctx.Done()) {
			return
		}
	}
	p.mu.Lock()
	p.manager = m
	p.mu.Unlock()
	var users sync.WaitGroup
	for i, work := range p.spec.Users {
		u := &User{p: p, m: m, label: fmt.Sprintf("user%d", i)}
		u.Chance = rand.New(rand.NewPCG(p.w.s.Seed,
			uint64(p.Index)<<32|uint64(p.generation)<<16|uint64(i)))
		users.Go(func() { work(u) }) // ends with p.ctx
	}
	users.Wait()
	if p.spec.Every > 0 && p.ctx.Err() == nil {
		p.w.At(p.w.Now(), p.Index, func() { p.WhenRunning(func() { p.close(p.w.s.Timing.Limit) }) })
	}
	<-p.ctx.Done()
	p.mu.Lock()
	c := p.closing
	p.mu.Unlock()
	if c != nil { // a fault or the end of a job has called Close
		<-c.returned
	}
	p.w.log.add("%s closes: %v", p, m.Close(background))
}

// id returns the latest process id, or "" before the first ping.
func (p *process) id() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ids) == 0 {
		return ""
	}
	return p.ids[len(p.ids)-1]
}

// hadID reports whether the process uses the process id or has used it before.
func (p *process) hadID(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.ids, id)
}

// releasing reports whether a release of a session is in transit.
func (p *process) releasing(ts bson.ObjectID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.open, func(c *call) bool {
		return c.op == fault.Release && c.ts == ts
	})
}

func (p *process) recordID(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ids) == 0 || p.ids[len(p.ids)-1] != id {
		p.ids = append(p.ids, id)
	}
}

// faultsEnd returns the end of the last Cut, Deaf, Hang or OldPrimary.
func (p *process) faultsEnd() time.Duration {
	return max(p.cutUntil, p.deafUntil, p.hangUntil, p.oldUntil)
}

// crash simulates the death of the process. Its goroutines end with the run.
func (p *process) crash() {
	if p.Dead {
		return
	}
	p.w.log.add("%s dies", p)
	p.Die()
}

// pause stops the process for d. If suspended is set, the monotonic clock also stops.
func (p *process) pause(d time.Duration, suspended bool) {
	if p.Dead {
		return
	}
	p.w.log.add("%s stops for %v", p, d)
	p.Pause(d, suspended, func() { p.w.log.add("%s runs again", p) })
}

func (p *process) endFaults() {
	p.cutUntil, p.deafUntil, p.hangUntil, p.oldUntil = 0, 0, 0, 0
	if !p.Dead {
		p.Wake()
	}
}

// A closing is a call of Manager.Close by a fault or at the end of a job.
type closing struct {
	since   time.Duration
	mono    time.Duration // start by the monotonic clock of the process
	limit   time.Duration // time limit of its context; 0 if the context is already done
	seen    bool          // the oracle has checked it
	excused bool          // a fault may have prevented the release of a lock

	returned chan struct{} // closed when the call has returned
	err      error         // set before returned is closed
}

// close calls Manager.Close with a context that ends after limit. Users may still be in calls.
func (p *process) close(limit time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.manager
	if m == nil || p.closing != nil {
		return
	}
	c := &closing{since: p.w.Now(), mono: p.Clock.Now().Mono, limit: limit,
		returned: make(chan struct{})}
	p.closing = c
	go func() { // ends with Close
		defer close(c.returned)
		ctx, cancel := context.WithTimeout(background, limit)
		defer cancel()
		c.err = m.Close(ctx)
		p.w.log.add("%s has closed: %v", p, c.err)
	}()
}

// over reports whether the process has died or closed.
func (p *process) over() bool {
	if p.Dead || p.closing == nil {
		return p.Dead
	}
	select {
	case <-p.closing.returned:
		return true
	default:
		return false
	}
}

// bury ends the goroutines of the process. Its open and later commands fail immediately.
func (p *process) bury() {
	p.Bury(func() {
		p.mu.Lock()
		open := p.open
		p.open = nil
		p.mu.Unlock()
		p.stop()
		for _, c := range open {
			c.finish(fault.Refused(c.op))
		}
	})
}
