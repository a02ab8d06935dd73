package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
	"mongodlm/takeover"
)

// Wander returns a user that repeatedly acquires one of the named locks, holds it for a while, and
// releases it.
func Wander(names ...string) func(*User) {
	return func(u *User) {
		t := u.p.w.s.Timing
		for u.Sleep(u.randomUpTo(t.Takeover / 8)) {
			name := names[u.Chance.IntN(len(names))]
			how := u.how(name)
			if u.Chance.IntN(5) == 0 {
				u.rareCall(name, names, how)
				continue
			}
			var h *Held
			if how.Wait == 0 && how.mode() == catalog.Exclusive && u.Chance.IntN(2) == 0 {
				h = u.Poll(name, u.randomUpTo(3*t.Takeover))
			} else {
				h = u.Acquire(name, how)
			}
			if h == nil {
				continue
			}
			if how.Lease > 0 && u.Chance.IntN(3) > 0 {
				u.renewFor(h, how.Lease/4, u.randomUpTo(t.Takeover))
			}
			u.Work(h, u.randomUpTo(t.Takeover/2))
			if u.Chance.IntN(4) == 0 {
				_ = h.guard.Verify(background) // the guard stores the result
			}
			if h.guard.Err() != nil && u.Chance.IntN(2) == 0 {
				u.Sleep(u.randomUpTo(t.Takeover)) // shutting the work down takes time
			}
			u.Release(h)
		}
	}
}

// rushes returns a user that repeatedly acquires a lock several times in succession, at the same
// time as the other users of its process.
func rushes(name string) func(*User) {
	return func(u *User) {
		every := u.p.w.s.Timing.Takeover / 2
		for u.Sleep(every - u.p.w.Now()%every) {
			rush(name, 2)(u)
		}
	}
}

// rareCall makes one of the rarer calls: LockAll, Do, a transaction, or two locks at a time.
func (u *User) rareCall(name string, names []string, how How) {
	t := u.p.w.s.Timing
	call := u.Chance.IntN(5)
	switch {
	case call == 0:
		plain := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == semaphore })
		held := u.LockAll(plain, u.randomUpTo(3*t.Takeover))
		u.Sleep(u.randomUpTo(t.Takeover / 4))
		for _, h := range slices.Backward(held) {
			u.Release(h)
		}
		return
	case call == 1 && how.Wait > 0:
		u.Do(name, how, u.randomUpTo(t.Takeover/2))
		return
	case call == 2 && name != semaphore:
		u.LockInTransaction(name, u.randomUpTo(t.Limit), u.randomUpTo(t.Takeover))
		return
	}
	h := u.Acquire(name, how)
	if h == nil {
		return
	}
	switch call {
	case 3:
		for range 3 {
			u.InTransaction(h, u.randomUpTo(t.Limit), u.randomUpTo(2*t.Limit), u.Chance.IntN(3) == 0)
		}
	case 4:
		other := names[u.Chance.IntN(len(names))]
		under := u.how(other)
		if u.Chance.IntN(2) == 0 { // else the Manager does not know that one caller needs both
			under.Under = h
		}
		u.Release(u.Acquire(other, under))
	}
	u.Release(h)
}

// semaphore is the name of a lock with permits.
const semaphore = "permits"

// how returns random options for the acquisition of a lock. Two thirds of the calls wait in the
// queue.
func (u *User) how(name string) How {
	var how How
	switch u.Chance.IntN(6) {
	case 0, 1:
	case 2, 3:
		how.Wait, how.Context = u.randomUpTo(3*u.p.w.s.Timing.Takeover), true
	default:
		how.Wait = u.randomUpTo(3 * u.p.w.s.Timing.Takeover)
	}
	switch {
	case name == semaphore: // sometimes as a semaphore with another limit, or as a plain lock
		how.Permits = []int{2, 2, 2, 2, 3, 0}[u.Chance.IntN(6)]
	case len(u.p.w.s.Foreign) == 0: // a foreign manager does not see a second sharer
		how.Shared = u.Chance.IntN(4) == 0
	}
	if u.Chance.IntN(4) == 0 {
		how.Lease = 10*time.Second + u.randomUpTo(u.p.w.s.Timing.Takeover)
	}
	return how
}

func (u *User) randomUpTo(d time.Duration) time.Duration {
	return time.Duration(u.Chance.Int64N(int64(d))) + time.Millisecond
}

// Walk returns the schedule of a random walk, which the seed determines.
//
// The walk keeps the assumptions of the guarantee:
//   - The rates of two clocks differ by a factor of less than 1.2.
//   - The wall clock of a suspended process continues.
//   - Either the server's clock steps, or the clocks of processes are wrong, because the
//     shorter takeover rule tolerates only one wrong clock. With takeover.WatchOnly, all
//     clocks may be wrong.
//   - If the server's clock steps, no free lock document is deleted, because the first
//     fence of a new document comes from that clock.
func Walk(seed uint64) Schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := Schedule{Seed: seed, Timing: Small(), Length: time.Duration(8+r.IntN(16)) * time.Minute}
	if r.IntN(4) == 0 {
		s.Timing, s.Length = Mongos(), time.Duration(2+r.IntN(4))*time.Hour
	}
	s.Quiet = 2 * s.Timing.Takeover
	names := []string{"a", "b", "c"}[:1+r.IntN(3)]
	s.Streams = r.IntN(2) == 0
	k := kindsOf(r, &s)
	if r.IntN(3) == 0 && !k.foreign {
		names = append(names, semaphore)
	}
	if k.foreign {
		s.Foreign = names
	}
	for range 2 + r.IntN(3) {
		p := Process{Rate: 1, Start: time.Duration(r.IntN(5)) * time.Second}
		if k.processClocks {
			p.Rate = 0.92 + 0.18*r.Float64()
			p.Offset = time.Duration(r.Int64N(int64(2*time.Hour))) - time.Hour
		}
		for range 1 + r.IntN(2) {
			p.Users = append(p.Users, Wander(names...))
		}
		for range 3 * r.IntN(2) {
			p.Users = append(p.Users, rushes(names[0]))
		}
		s.Processes = append(s.Processes, p)
	}
	every := s.Timing.Takeover / time.Duration(1+r.IntN(4))
	for at := time.Duration(0); at < s.Length; at += time.Duration(r.Int64N(int64(2 * every))) {
		s.Faults = append(s.Faults, k.fault(r, s, at)...)
	}
	if r.IntN(3) == 0 {
		p := Process{Every: s.Timing.Takeover / time.Duration(1+r.IntN(8))}
		p.Users = []func(*User){lockFor(names[0], s.Timing.Ping+time.Second, 2*sec)}
		if k.processClocks {
			p.Offset = time.Duration(r.Int64N(int64(2*time.Hour))) - time.Hour
		}
		s.Processes = append(s.Processes, p)
	}
	return s
}

type kinds struct {
	kinds         []Kind
	serverClock   bool // the server's clock may step
	processClocks bool // the clocks of processes may be wrong
	foreign       bool // a foreign manager takes part
}

// always lists the kinds of fault that every walk may have. A kind that occurs twice is twice as
// likely.
var always = []Kind{
	DelayRequest, DelayRequest, DelayReply, DelayReply, Refuse, Drop, LoseReply, LoseReply,
	ApplyLate, ApplyLate, ApplyLate, Duplicate, Duplicate, StaleRead, CrashBefore, PauseBefore,
	Crash, Crash, Pause, Pause, Pause, Cut, Cut, Deaf, Hang, OldPrimary, Elect, Sever, EndContexts,
	EndContexts, Close,
}

// Walked returns every kind of fault that walks may have.
func Walked() map[Kind]bool {
	all := map[Kind]bool{
		Restart: true, StepServer: true, StepWall: true, Suspend: true, RemoveFree: true,
	}
	for _, k := range always {
		all[k] = true
	}
	return all
}

func kindsOf(r *rand.Rand, s *Schedule) kinds {
	k := kinds{kinds: slices.Clone(always), serverClock: r.IntN(2) == 0}
	k.processClocks = !k.serverClock
	if r.IntN(3) == 0 {
		s.Timing.Mode = takeover.WatchOnly
		k.serverClock, k.processClocks = true, true
	}
	if k.serverClock {
		k.kinds = append(k.kinds, StepServer)
	} else {
		k.kinds = append(k.kinds, RemoveFree)
	}
	if k.processClocks && r.IntN(2) == 0 {
		k.kinds = append(k.kinds, StepWall)
	} else {
		k.kinds = append(k.kinds, Suspend)
	}
	// MongoDB's own lock manager decides only by the server's clock. So it takes part only if that
	// clock does not step.
	k.foreign = !k.serverClock && r.IntN(2) == 0
	return k
}

// ops lists the commands for which faults matter most.
var ops = []fault.Op{
	fault.Acquire, fault.Look, fault.Condemn, fault.Witness, fault.Evict, fault.Release, fault.Ping,
	fault.Held,
	fault.Confirm, fault.SeedFence, fault.Hello, fault.Read, fault.Enter, fault.Enter,
	fault.Evict, fault.GrantNext, fault.Look, fault.Look, fault.HeldOrFree, fault.Waiting,
	fault.Renew, fault.Renew, fault.GrantStream, fault.Notice, fault.Notice, fault.EnterTransaction,
	opTouch, opCommit,
}

// fault returns a random fault. If the fault ends the process, fault also returns a restart.
func (k kinds) fault(r *rand.Rand, s Schedule, at time.Duration) []Fault {
	f := Fault{Kind: k.kinds[r.IntN(len(k.kinds))], Process: r.IntN(len(s.Processes)), At: at}
	t := s.Timing.Takeover
	if sent := f.Kind == Crash || f.Kind == Pause; f.Kind.onCall() && r.IntN(4) > 0 ||
		sent && r.IntN(3) == 0 {
		f.Op = ops[r.IntN(len(ops))]
	}
	switch f.Kind {
	case StepWall, StepServer:
		f.For = time.Duration(r.Int64N(int64(4*t))) - 2*t
	case Elect:
		if k.serverClock {
			f.For = time.Duration(r.Int64N(int64(2*t))) - t
		}
	default:
		f.For = time.Duration(r.Int64N(int64(t) * int64(1+r.IntN(2))))
		if r.IntN(3) == 0 {
			f.For = time.Duration(r.Int64N(int64(s.Timing.Limit)))
		}
	}
	switch {
	case f.Kind == Close && r.IntN(2) == 0:
		f.For = 0
	case (f.Kind == ApplyLate || f.Kind == Duplicate) && r.IntN(3) == 0:
		f.For = time.Duration(r.Int64N(int64(s.Length))) // long after its callers have returned
	}
	faults := []Fault{f}
	switch f.Kind {
	case CrashBefore, Crash, Close:
		// If the process is still alive at the time of the restart, the restart has no effect, even if
		// the process dies later.
		back := at + time.Duration(r.Int64N(int64(2*t)))
		faults = append(faults, Fault{Kind: Restart, Process: f.Process, At: back})
	}
	return faults
}
