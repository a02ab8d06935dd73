package simulation

import (
	"context"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/fault"
)

// An Outside observes and controls a run. It is for tests of packages built on the lock.
type Outside struct{ w *world }

// At schedules a call as an event. The event happens after the given duration from now.
func (o *Outside) At(at time.Duration, do func()) { o.w.After(at, do) }

// Manager returns the process's Manager.
func (u *User) Manager() *distlock.Manager { return u.m }

// Clock returns the process's clock.
func (u *User) Clock() clock.Clock { return u.p.Clock }

// Context returns a context that ends with the run. The context carries the clock of the process.
func (u *User) Context() context.Context { return clock.With(u.p.ctx, u.p.Clock) }

// Shut reports whether the user must stop, because the run ends or a fault closes the process.
func (u *User) Shut() bool {
	u.p.mu.Lock()
	defer u.p.mu.Unlock()
	return u.p.closing != nil || u.p.ctx.Err() != nil
}

// Dead reports whether the process has died. Only the event loop may call it.
func (u *User) Dead() bool { return u.p.Dead }

func (u *User) String() string { return u.p.String() }

// Command sends a command to a store other than the store of the locks. The event loop carries out
// the command by calling the given function. The faults of the run also strike this command, so the
// function may be called twice, late or never.
func (u *User) Command(ctx context.Context, op fault.Op, writes bool, do func() error) error {
	return (&call{p: u.p, op: op, writes: writes, do: do}).submit(ctx)
}

// Notice schedules a call as an event of the process. While the process is paused, the event waits.
func (u *User) Notice(do func()) {
	w := u.p.w
	w.Post(u.p.Index, "notice", func() { u.p.WhenRunning(do) })
}

// Die kills the process. A new process takes its place after the given delay. Die returns at the
// end of the run.
func (u *User) Die(delay time.Duration) {
	p := u.p
	p.w.Post(p.Index, "die", func() {
		p.crash()
		p.w.After(delay, func() { p.w.restart(p.Index) })
	})
	<-p.ctx.Done()
}

func (w *world) restart(i int) {
	if p := w.slots[i]; p != nil && p.over() {
		w.launch(i)
	}
}

// Always adds a check that runs after every event.
func (o *Outside) Always(check func()) { o.w.always = append(o.w.always, check) }

// Violated records a violation of a rule of the package under test.
func (o *Outside) Violated(rule, format string, args ...any) {
	o.w.oracle.violated(rule, format, args...)
}

// End ends the run early, before the end of the quiet time.
func (o *Outside) End() { o.w.over = true }

// Healed reports whether the time for faults is over. It is safe for concurrent use.
func (o *Outside) Healed() bool { return o.w.Now() >= o.w.s.Length }

// Now returns the time since the start of the run.
func (o *Outside) Now() time.Duration { return o.w.Now() }

// ServerNow returns the time of the server's clock.
func (o *Outside) ServerNow() time.Time { return o.w.ServerNow() }

// Revive starts a new process in each place whose last process has died or closed.
func (o *Outside) Revive() {
	for i := range o.w.slots {
		o.w.restart(i)
	}
}

// Traced reports whether the run records its timeline.
func (o *Outside) Traced() bool { return o.w.s.Trace }

// Say adds a line to the timeline. It is safe for concurrent use.
func (o *Outside) Say(format string, args ...any) { o.w.log.add(format, args...) }
