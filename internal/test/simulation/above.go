package simulation

import (
	"context"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/fault"
)

// This file is for what is built on the lock. Its users bring a store of their own, whose commands
// meet the faults of a schedule as those of the lock do, and rules of their own.

// Manager is that of the user's process.
func (u *User) Manager() *distlock.Manager { return u.m }

// Clock is that of the user's process.
func (u *User) Clock() clock.Clock { return u.p.Clock }

// Context ends with the run, and carries the clock of the process.
func (u *User) Context() context.Context { return clock.With(u.p.ctx, u.p.Clock) }

// Shut reports whether the process was closed under the user, who is to stop.
func (u *User) Shut() bool { return u.shut() || u.p.ctx.Err() != nil }

// Dead reports whether the process has died. The loop of the world may ask.
func (u *User) Dead() bool { return u.p.Dead }

func (u *User) String() string { return u.p.String() }

// Command is a command to another store than that of the locks: an event that meets faults. do
// carries it out, in the loop of the world, perhaps late and perhaps twice.
func (u *User) Command(ctx context.Context, op fault.Op, writes bool, do func() error) error {
	return (&call{p: u.p, op: op, writes: writes, do: do}).submit(ctx)
}

// Notice lets the process hear of something, when it runs.
func (u *User) Notice(do func()) {
	w := u.p.w
	w.Post(u.p.Index, "notice", func() { u.p.WhenRunning(do) })
}

// Die kills the process, and starts another one in its place after a while. It returns when the run
// is over.
func (u *User) Die(back time.Duration) {
	p := u.p
	p.w.Post(p.Index, "die", func() {
		p.crash()
		p.w.After(back, func() { p.w.revive(p.Index) })
	})
	<-p.ctx.Done()
}

// revive starts a process in a place whose last one is over.
func (w *world) revive(i int) {
	if p := w.slots[i]; p != nil && p.over() {
		w.launch(i)
	}
}

// Always is asked after every event.
func (o *Outside) Always(look func()) { o.w.always = append(o.w.always, look) }

// Violated says that a rule of what is built on the lock was broken.
func (o *Outside) Violated(rule, format string, args ...any) {
	o.w.judge.violated(rule, format, args...)
}

// End ends the quiet time: there is nothing left to be seen.
func (o *Outside) End() { o.w.over = true }

// Healed reports whether the faults are over. Any goroutine may ask.
func (o *Outside) Healed() bool { return o.w.Now() >= o.w.s.Length }

// Now is the time since the start of the run.
func (o *Outside) Now() time.Duration { return o.w.Now() }

// ServerNow is the server's clock.
func (o *Outside) ServerNow() time.Time { return o.w.ServerNow() }

// Revive starts a process in every place where there is none.
func (o *Outside) Revive() {
	for i := range o.w.slots {
		o.w.revive(i)
	}
}

// Say is a line of the timeline. Any goroutine may call it.
func (o *Outside) Say(format string, args ...any) { o.w.log.told(format, args...) }
