package virtual

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"time"

	"mongodlm/internal/clock"
)

// A Clock is the clock of one process. It consists of a wall clock and a monotonic clock, which run
// at the same fixed rate relative to true time. The wall clock can step or stop. The monotonic
// clock stops while the process is suspended. The timers are events of the agenda.
type Clock struct {
	// Chance returns a random number from 0 to 1, by which pauses vary. If it is nil, the number is
	// always 0.5.
	Chance func() float64

	p    *Process
	rate float64

	mu        sync.Mutex // guards the fields below
	wall      time.Duration
	stands    *time.Time    // reading of a stopped wall clock; nil while it runs
	lost      time.Duration // monotonic time lost in earlier suspensions
	suspended bool
	since     time.Duration // start of the present suspension
}

var _ clock.Clock = (*Clock)(nil)

// Now returns the readings of the wall clock and the monotonic clock.
func (c *Clock) Now() clock.Reading {
	now := c.p.w.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	awake := now - c.lost
	if c.suspended {
		awake = c.since - c.lost
	}
	wall := c.p.w.epoch.Add(c.scaled(now) + c.wall)
	if c.stands != nil {
		wall = *c.stands
	}
	return clock.Reading{Wall: wall, Mono: c.scaled(awake)}
}

func (c *Clock) scaled(d time.Duration) time.Duration {
	if c.rate == 1 {
		return d
	}
	return time.Duration(float64(d) * c.rate)
}

// Jitter returns the random number by which the pauses of pings and waiters vary.
func (c *Clock) Jitter() float64 {
	if c.Chance == nil {
		return 0.5
	}
	return c.Chance()
}

// Step steps the wall clock.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
}

// Stand stops the wall clock permanently.
func (c *Clock) Stand() {
	at := c.Now().Wall
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stands = &at
}

// suspend stops or restarts the monotonic clock.
func (c *Clock) suspend(on bool) {
	now := c.p.w.Now()
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

// NewTimer returns a timer that runs by the monotonic clock. The timer fires only while the process
// runs.
func (c *Clock) NewTimer(d time.Duration) clock.Timer {
	t := &timer{c: c, ch: make(chan time.Time, 1)}
	runtime.Callers(2, t.makers[:])
	t.Reset(d)
	return t
}

// site returns the names and lines of the functions that made the timer. Simultaneous timers are
// sorted by this text, because program counters differ between builds.
func (t *timer) site() string {
	if known, ok := sites.Load(t.makers); ok {
		return known.(string)
	}
	frames := runtime.CallersFrames(t.makers[:])
	var names strings.Builder
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&names, "%s:%d ", f.Function, f.Line)
	}
	sites.Store(t.makers, names.String())
	return names.String()
}

var sites sync.Map

type timer struct {
	c      *Clock
	ch     chan time.Time
	makers [6]uintptr // functions that made the timer

	mu    sync.Mutex // guards the fields below
	due   time.Duration
	round int // number of calls of Reset and Stop; the timer does not fire for an older round
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

// set adds the timer to the agenda. The timer fires when the clock of the process has advanced by
// left.
func (t *timer) set(left time.Duration, round int) {
	p, w := t.c.p, t.c.p.w
	if t.c.rate != 1 {
		left = time.Duration(math.Ceil(float64(left) / t.c.rate))
	}
	e := &Event{At: w.Now() + left, Owner: p.Index, timer: t, round: round,
		run: func() { p.WhenRunning(func() { t.fire(round) }) }}
	w.mu.Lock()
	w.timers = append(w.timers, e)
	w.mu.Unlock()
	w.Poke()
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
	if current && left > 0 { // after a suspension, or a rounding
		t.set(max(left, time.Microsecond), round)
	}
}
