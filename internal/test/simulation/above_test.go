package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/fault"
	"mongodlm/internal/test/simulation"
	"mongodlm/singleton"
)

// A work is a running call of a user's function under a lock. Its field err is a function that
// returns nil while the lock is trusted.
type work struct {
	u     *simulation.User
	err   func() error
	fence int64
}

type runState struct {
	seed  uint64
	lease time.Duration
	rerun bool
	clock bool // the server's clock steps
	out   *simulation.Outside
	store *singleton.MemoryStore

	mu    sync.Mutex // guards the rest
	works []*work
	begun int
	last  time.Duration // start of the last work
	fence int64         // largest fence
	slots map[string]bool
	slot  time.Time // latest started slot
}

// kinds maps the name of a package or mode under test to the function that its users run.
var kinds = map[string]func(*runState, *simulation.User){
	"election": (*runState).elect, "loop": (*runState).loop, "slots": (*runState).slotted,
}

// checkTrusted checks that at most one running work trusts its lock.
func (g *runState) checkTrusted() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var trusted []int64
	for _, w := range g.works {
		if !w.u.Dead() && w.err() == nil {
			trusted = append(trusted, w.fence)
		}
	}
	if len(trusted) > 1 {
		slices.Sort(trusted)
		g.out.Violated("two at work", "the trusted fences are %v", trusted)
	}
}

// run records a work, and then runs it. If the lock has no lease, the argument renew does nothing.
func (g *runState) run(ctx context.Context, u *simulation.User, fence int64, err func() error,
	renew func()) error {
	g.out.Say("%s begins under fence %d", u, fence)
	w := &work{u: u, err: err, fence: fence}
	g.mu.Lock()
	g.works = append(g.works, w)
	g.begun++
	g.last, g.fence = g.out.Now(), max(g.fence, fence)
	chance := rand.New(rand.NewPCG(g.seed, uint64(fence)<<16|uint64(g.begun)))
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.works = slices.DeleteFunc(g.works, func(other *work) bool { return other == w })
	}()
	return g.work(ctx, u, chance, renew)
}

// work is the function that each user runs under a lock. It works for a random time, and obeys or
// ignores its context. Then it succeeds, fails, panics or kills its process.
func (g *runState) work(ctx context.Context, u *simulation.User, r *rand.Rand, renew func()) error {
	ignores := r.IntN(3) == 0
	for range 1 + r.IntN(6) {
		switch d := time.Duration(r.IntN(10_000)) * time.Millisecond; {
		case ignores && !u.Sleep(d):
			return errors.New("over")
		case !ignores && !clock.Sleep(u.Clock(), d, ctx.Done()):
			return context.Cause(ctx)
		}
		if r.IntN(3) > 0 {
			renew()
		}
	}
	if g.out.Healed() {
		return nil
	}
	switch r.IntN(20) {
	case 0, 1, 2:
		return errors.New("failed")
	case 3:
		panic("boom")
	case 4:
		u.Die(time.Duration(1+r.IntN(60)) * time.Second)
	}
	return nil
}

// repeat makes the given call repeatedly, until the process closes. It ends the contexts of some
// calls early.
func (g *runState) repeat(u *simulation.User, run func(ctx context.Context)) {
	for !u.Shut() {
		ctx, cancel := context.WithCancel(u.Context())
		after := time.Duration(u.Chance.IntN(900)) * time.Second
		over := make(chan struct{})
		go func() { // ends with ctx
			defer close(over)
			if clock.Sleep(u.Clock(), after, ctx.Done()) && !g.out.Healed() {
				cancel()
			}
		}()
		run(ctx)
		cancel()
		<-over
		u.Sleep(time.Second)
	}
}

func (g *runState) elect(u *simulation.User) {
	e := election.New(u.Manager(), "leader")
	opts := []election.Option{election.Backoff(time.Second, 10*time.Second)}
	if g.lease > 0 {
		opts = append(opts, election.Lease(g.lease))
	}
	g.repeat(u, func(ctx context.Context) {
		_ = e.Run(ctx, func(ctx context.Context, l *election.Leadership) error {
			g.mu.Lock()
			if l.Fence() <= g.fence {
				g.out.Violated("fences rise", "a term has fence %d after %d", l.Fence(), g.fence)
			}
			g.mu.Unlock()
			return g.run(ctx, u, l.Fence(), l.Err, func() { _ = l.Renew(ctx) })
		}, opts...)
	})
}

func (g *runState) loop(u *simulation.User) {
	g.repeat(u, func(ctx context.Context) {
		_ = singleton.Run(ctx, u.Manager(), singleton.Loop{Name: "loop", Store: records{g.store, u},
			Every: 10 * time.Second, Turn: 5, Do: func(ctx context.Context, guard *distlock.TryGuard) error {
				return g.run(ctx, u, guard.Fence(), guard.Err, func() {})
			}})
	})
}

func (g *runState) slotted(u *simulation.User) {
	g.repeat(u, func(ctx context.Context) {
		_ = singleton.RunSlots(ctx, u.Manager(), singleton.Slots{Name: "slots",
			Store: records{g.store, u}, Schedule: singleton.Every(30 * time.Second),
			Missed: singleton.RunAll, MostMissed: 10_000, Rerun: g.rerun,
			Do: func(ctx context.Context, s singleton.Slot) error {
				g.checkSlot(s)
				return g.run(ctx, u, s.Guard.Fence(), s.Guard.Err, func() {})
			}})
	})
}

// maxLead is the lead of a clock that ran 10 % too fast for half a minute.
const maxLead = 3 * time.Second

// checkSlot checks that slots start in order, and that no slot starts twice or before its time.
func (g *runState) checkSlot(s singleton.Slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := fmt.Sprintf("slot %s, attempt %d", s.Time.Format(time.TimeOnly), s.Attempt)
	switch {
	case g.slots[key] || !g.rerun && s.Attempt != 1:
		g.out.Violated("slots", "%s has started twice", key)
	case s.Time.Before(g.slot):
		g.out.Violated("slots", "%s starts after the slot of %s", key, g.slot.Format(time.TimeOnly))
	case !g.clock && s.Time.After(g.out.ServerNow().Add(maxLead)):
		g.out.Violated("slots", "%s starts before its time", key)
	}
	g.slots[key], g.slot = true, s.Time
}

// A records is the [singleton.Store] of one process. Its commands are events.
type records struct {
	singleton.Store
	u *simulation.User
}

func (s records) Settings(ctx context.Context, names ...string) (map[string]bson.Raw, error) {
	return sent(ctx, s.u, "records: settings", false, func() (map[string]bson.Raw, error) {
		return s.Store.Settings(background, names...)
	})
}

func (s records) Change(ctx context.Context, c singleton.Change) (bson.Raw, error) {
	return sent(ctx, s.u, "records: change", true,
		func() (bson.Raw, error) { return s.Store.Change(background, c) })
}

var background = context.Background()

func sent[T any](ctx context.Context, u *simulation.User, op fault.Op, writes bool,
	do func() (T, error)) (T, error) {
	var none, got T
	if err := u.Command(ctx, op, writes,
		func() (err error) { got, err = do(); return err }); err != nil {
		return none, err
	}
	return got, nil
}

// walkAbove returns the schedule of a random walk for users of one kind. The faults are those of
// [simulation.Walk].
func walkAbove(kind string, seed uint64) simulation.Schedule {
	s := simulation.Walk(seed)
	r := rand.New(rand.NewPCG(seed, 22))
	s.Name, s.Foreign = fmt.Sprintf("walk %d of %s", seed, kind), nil
	g := &runState{seed: seed, rerun: seed%2 == 0}
	if kind == "election" && r.IntN(3) == 0 {
		g.lease = 10*time.Second + time.Duration(r.Int64N(int64(s.Timing.Takeover)))
	}
	s.Processes = slices.DeleteFunc(s.Processes,
		func(p simulation.Process) bool { return p.Every > 0 })
	for i := range s.Processes {
		s.Processes[i].Users = []func(*simulation.User){func(u *simulation.User) { kinds[kind](g, u) }}
	}
	for i, f := range s.Faults {
		s.Faults[i].Process = f.Process % len(s.Processes)
		if f.Op != "" && kind != "election" && r.IntN(3) == 0 {
			s.Faults[i].Op = "records: change"
		}
		g.clock = g.clock || f.Kind == simulation.StepServer || f.Kind == simulation.Elect && f.For != 0
	}
	s.Quiet = 6 * s.Timing.Takeover
	s.World = func(o *simulation.Outside) {
		g.out, g.store = o, singleton.NewMemoryStore(o.ServerNow)
		g.slots = map[string]bool{}
		o.Always(g.checkTrusted)
		o.At(s.Length+time.Second, o.Revive)
		o.At(s.Length+s.Quiet-time.Millisecond, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			// A work takes at most a minute, and the pause before the next work is shorter.
			if idle := o.Now() - g.last; idle > 3*time.Minute && !(g.clock && strings.Contains(kind, "s")) {
				o.Violated("goes on", "nothing has started for %v", idle)
			}
		})
	}
	return s
}

// Under all faults, at most one term, round or slot trusts its lock, and each attempt of a slot
// starts once. After the faults, new work starts.
func TestWalk_OfWhatIsBuiltOnTheLock_FindsNothing(t *testing.T) {
	t.Parallel()
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			simulation.Walks(t, 8, 3, func(seed uint64) simulation.Schedule { return walkAbove(kind, seed) })
		})
	}
}
