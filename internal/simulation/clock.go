package simulation

import (
	"math"
	"runtime"
	"sync"
	"time"

	"mongodlm/internal/clock"
)

// epoch is true time at the start of a run.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// A processClock is the clock of one simulated process: true time at a rate, a wall clock that may
// step, a monotonic clock that may stand still. Its timers are events of the agenda.
type processClock struct {
	p    *process
	rate float64

	mu        sync.Mutex // guards what follows
	wall      time.Duration
	lost      time.Duration // monotonic time lost in suspensions that are over
	suspended bool
	since     time.Duration // of the suspension under way
}

var _ clock.Clock = (*processClock)(nil)

// Now reads both clocks.
func (c *processClock) Now() clock.Reading {
	now := c.p.w.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	awake := now - c.lost
	if c.suspended {
		awake = c.since - c.lost
	}
	return clock.Reading{
		Wall: epoch.Add(c.scaled(now) + c.wall), Mono: c.scaled(awake),
	}
}

func (c *processClock) scaled(d time.Duration) time.Duration {
	if c.rate == 1 {
		return d
	}
	return time.Duration(float64(d) * c.rate)
}

// Jitter is the chance of the pinger and of everybody who waits.
func (c *processClock) Jitter() float64 {
	if c.p.w.s.Seed == 0 {
		return 0.5
	}
	const bits = 1 << 53
	return float64(c.p.w.chance("jitter", c.p.w.now(), uint64(c.p.index))%bits) / bits
}

func (c *processClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
}

// suspend stops the monotonic clock, or starts it again.
func (c *processClock) suspend(on bool) {
	now := c.p.w.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case on && !c.suspended:
		c.suspended, c.since = true, now
	case !on && c.suspended:
		c.suspended = false
		c.lost += now - c.since
	}
}

// NewTimer makes a timer that fires by the monotonic clock of the process.
func (c *processClock) NewTimer(d time.Duration) clock.Timer {
	t := &timer{c: c, ch: make(chan time.Time, 1), site: callSite()}
	t.Reset(d)
	return t
}

// callSite tells the places apart from which timers are made.
func callSite() uintptr {
	var calls [6]uintptr
	var site uintptr
	for _, pc := range calls[:runtime.Callers(3, calls[:])] {
		site = site*31 + pc
	}
	return site
}

// A timer of a process. It fires only while the process runs.
type timer struct {
	c    *processClock
	ch   chan time.Time
	site uintptr // where it was made

	mu    sync.Mutex // guards what follows
	due   time.Duration
	round int // of Reset and Stop; an older round does not fire
}

func (t *timer) C() <-chan time.Time { return t.ch }

func (t *timer) Reset(d time.Duration) {
	t.Stop()
	t.mu.Lock()
	t.due = t.c.Now().Mono + max(d, 0)
	round := t.round
	t.mu.Unlock()
	t.set(max(d, 0), round)
}

func (t *timer) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.round++
	select {
	case <-t.ch:
	default:
	}
}

// set enters the timer into the agenda; left is by the clock of the process.
func (t *timer) set(left time.Duration, round int) {
	w := t.c.p.w
	if t.c.rate != 1 {
		left = time.Duration(math.Ceil(float64(left) / t.c.rate))
	}
	w.add(&event{at: w.now() + left, owner: t.c.p.index, timer: t, round: round, run: func() {
		t.c.p.whenRunning(func() { t.fire(round) })
	}})
}

func (t *timer) void(round int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.round != round
}

func (t *timer) fire(round int) {
	now := t.c.Now()
	t.mu.Lock()
	left := t.due - now.Mono
	current := t.round == round
	if current && left <= 0 {
		t.ch <- now.Wall
	}
	t.mu.Unlock()
	if current && left > 0 { // it was suspended meanwhile, or rounding
		t.set(max(left, time.Microsecond), round)
	}
}
