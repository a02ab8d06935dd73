package simulation

import (
	"time"

	"mongodlm/internal/test/fault"
)

// This file has the schedules of locks with a lease.

const life = 40 * sec

// leased acquires a lock with a lease at 2 s and lets work do what it does under it.
func leased(work func(u *User, h *Held)) func(*User) {
	return from(2*sec, func(u *User) {
		if h := u.Acquire("a", How{Lease: life}); h != nil {
			work(u, h)
			u.Release(h)
		}
	})
}

// after acquires the lock from 5 s on, in line or by tries.
func after(how How) func(*User) {
	return from(5*sec, func(u *User) {
		h := u.Ask("a", how, time.Hour)
		if h == nil {
			return
		}
		u.Work(h, 20*sec)
		u.Release(h)
	})
}

// hangs40: A's job hangs and its process pings on; B has the lock when the lease has run out.
func hangs40(how How) Schedule {
	s := scene(leased(func(u *User, h *Held) { u.Sleep(4 * minute) }), after(how))
	s.Length = 5 * minute
	return s
}

// renewing: A renews for three minutes, and dies.
func renewing() Schedule {
	s := scene(leased(func(u *User, h *Held) { u.renewFor(h, 20*sec, 3*minute) }),
		after(How{Wait: time.Hour}))
	s.Length = 6 * minute
	s.Faults = []Fault{{Kind: Crash, Process: 0, At: 3 * minute}}
	return s
}

// slowRenewal: the reply of A's renewal takes longer than the margin, and it is the last one.
func slowRenewal() Schedule {
	s := scene(leased(func(u *User, h *Held) {
		u.Sleep(10 * sec)
		_ = u.Renew(h)
		u.Work(h, minute)
	}), after(How{}))
	s.Timing.Limit, s.Timing.Ping, s.Timing.Margin = 20*sec, 15*sec, 10*sec
	s.Faults = []Fault{{Kind: DelayReply, Process: 0, Op: fault.Renew, Nth: 2, For: 18 * sec}}
	return s
}

// lateRenewal: A gives a renewal up that reaches the store between B's last look and its overtake,
// which is slow.
func lateRenewal() Schedule {
	s := scene(leased(func(u *User, h *Held) {
		u.Until(30 * sec)
		_ = u.Renew(h)
		u.Until(2 * minute)
	}), after(How{}))
	s.Faults = []Fault{
		{Kind: ApplyLate, Process: 0, Op: fault.Renew, Nth: 2, For: 14 * sec},
		{Kind: DelayRequest, Process: 1, Op: fault.Overtake, Nth: 1, For: 4500 * time.Millisecond},
	}
	return s
}

// uncommittedRenewal: A renews in a transaction whose work fails, and hangs; B has the lock when
// the lease has run out that it had before.
func uncommittedRenewal() Schedule {
	s := scene(leased(func(u *User, h *Held) {
		u.Sleep(20 * sec)
		u.renewInVain(h)
		u.Sleep(4 * minute)
	}), after(How{Wait: time.Hour}))
	s.Length = 5 * minute
	return s
}

// amongVisitors: A works in transactions, and renews its lease in them if it has one, while B comes
// into the line and leaves it.
func amongVisitors(how How) Schedule {
	return scene(from(2*sec, func(u *User) {
		h := u.Acquire("a", how)
		for range 10 {
			u.InTransaction(h, 3*sec, minute, false)
			u.Sleep(10 * sec)
		}
		u.Release(h)
	}), from(3*sec, func(u *User) {
		for range 300 {
			if h := u.Lock("a", 300*time.Millisecond); h != nil {
				u.Release(h)
			}
		}
	}))
}

// leasePaused: A stops in the middle of its renewals for longer than its lease, and goes on.
func leasePaused() Schedule {
	s := scene(leased(func(u *User, h *Held) { u.renewFor(h, 15*sec, 3*minute) }),
		after(How{Wait: time.Hour}))
	s.Faults = []Fault{{Kind: Pause, Process: 0, At: 40 * sec, For: 50 * sec}}
	return s
}

// leaseNotBegun: A stops in the first renewal until its term is over. What it releases then waits
// for a ping.
func leaseNotBegun() Schedule {
	s := scene(leased(func(*User, *Held) {}), after(How{Wait: time.Hour}))
	s.Faults = []Fault{{Kind: PauseBefore, Process: 0, Op: fault.Renew, Nth: 1, For: 50 * sec}}
	return s
}

// leaseHeardLate: B is granted the lock by A's release and hears of it late, so its life counts
// from there.
func leaseHeardLate() Schedule {
	next := from(5*sec, func(u *User) {
		if h := u.Acquire("a", How{Wait: time.Hour, Lease: life}); h != nil {
			u.Work(h, 2*minute)
			u.Release(h)
		}
	})
	s := scene(holdFor("a", 20*sec), next, from(25*sec, after(How{Wait: time.Hour})))
	s.Faults = []Fault{{Kind: Pause, Process: 1, At: 15 * sec, For: 25 * sec}}
	return s
}

// permitHangs: of two permits one hangs and the other renews; C gets that of the one that hangs.
func permitHangs() Schedule {
	permit := How{Permits: 2, Lease: life, Wait: time.Hour}
	s := scene(
		func(u *User) {
			if h := u.Acquire("a", permit); h != nil {
				u.Sleep(2 * minute)
				u.Release(h)
			}
		},
		func(u *User) {
			if h := u.Acquire("a", permit); h != nil {
				u.renewFor(h, 15*sec, 2*minute)
				u.Release(h)
			}
		},
		after(How{Permits: 2, Wait: time.Hour}))
	return s
}
