package simulation

import (
	"context"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/fault"
)

// This file serves packages built on the lock. A user of such a package brings another store and
// more rules. The faults of a schedule also strike the commands to that store.

// Outside changes the world from outside of all processes.
type Outside struct{ w *world }

// At runs do at an instant.
func (o *Outside) At(at time.Duration, do func()) { o.w.After(at, do) }

// Manager returns the process's Manager.
func (u *User) Manager() *distlock.Manager { return u.m }

// Clock returns the process's clock.
func (u *User) Clock() clock.Clock { return u.p.Clock }

// Context returns a context that ends with the run and carries the clock of the process.
func (u *User) Context() context.Context { return clock.With(u.p.ctx, u.p.Clock) }

// Shut reports whether the user must stop, because a fault has closed the process or the run is
// over.
func (u *User) Shut() bool {
	u.p.mu.Lock()
	defer u.p.mu.Unlock()
	return u.p.shut || u.p.ctx.Err() != nil
}

// Dead reports whether the process has died. Only the loop of the world may call it.
func (u *User) Dead() bool { return u.p.Dead }

func (u *User) String() string { return u.p.String() }

// Command submits a command to a store that does not keep the locks. The command is an event, and
// faults can strike it. The loop of the world calls do, perhaps late or twice.
func (u *User) Command(ctx context.Context, op fault.Op, writes bool, do func() error) error {
	return (&call{p: u.p, op: op, writes: writes, do: do}).submit(ctx)
}

// Notice runs do as an event while the process runs.
func (u *User) Notice(do func()) {
	w := u.p.w
	w.Post(u.p.Index, "notice", func() { u.p.WhenRunning(do) })
}

// Die kills the process and replaces it with another process after a delay. It returns when the run
// is over.
func (u *User) Die(back time.Duration) {
	p := u.p
	p.w.Post(p.Index, "die", func() {
		p.crash()
		p.w.After(back, func() { p.w.revive(p.Index) })
	})
	<-p.ctx.Done()
}

// revive starts a new process in a place if its previous process is over.
func (w *world) revive(i int) {
	if p := w.slots[i]; p != nil && p.over() {
		w.launch(i)
	}
}

// Always adds a check that runs after every event.
func (o *Outside) Always(look func()) { o.w.always = append(o.w.always, look) }

// Violated records that a rule of a package built on the lock was broken.
func (o *Outside) Violated(rule, format string, args ...any) {
	o.w.judge.violated(rule, format, args...)
}

// End ends the quiet time early.
func (o *Outside) End() { o.w.over = true }

// Healed reports whether the faults are over. Any goroutine may call it.
func (o *Outside) Healed() bool { return o.w.Now() >= o.w.s.Length }

// Now returns the time since the start of the run.
func (o *Outside) Now() time.Duration { return o.w.Now() }

// ServerNow returns the time of the server's clock.
func (o *Outside) ServerNow() time.Time { return o.w.ServerNow() }

// Revive starts a new process in every place without a running process.
func (o *Outside) Revive() {
	for i := range o.w.slots {
		o.w.revive(i)
	}
}

// Say adds a line to the timeline. Any goroutine may call it.
func (o *Outside) Say(format string, args ...any) { o.w.log.told(format, args...) }
