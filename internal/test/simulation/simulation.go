package simulation

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"mongodlm/internal/test/virtual"
)

// A world is the state of one run of a schedule.
type world struct {
	*virtual.World
	s         Schedule
	store     *store
	slots     []*process // the latest process in each place
	processes []*process // every process so far
	log       timeline
	oracle    *oracle
	done      Result

	faults     []Fault  // that will strike a command
	foreign    *foreign // nil if the schedule has none
	faultsOver bool
	over       bool // the quiet time is over
	ended      bool // no process starts from now on
	// underWay counts the requests in transit that arrive within the time limit of a command.
	underWay int
	choices  uint64   // number of choices between processes so far
	always   []func() // checks of packages built on the lock
}

var background = context.Background()

var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// A Result is the outcome of a run.
type Result struct {
	Violations []Violation
	Timeline   []string
	Stats      Stats
	// CallsOf contains the number of commands of the first process in each place. The places are in
	// the order in which their first processes started.
	CallsOf []int
}

// Failed reports whether a rule was violated.
func (r Result) Failed() bool { return len(r.Violations) > 0 }

// Run runs a schedule in a new testing/synctest bubble. It must not be called in a bubble.
func Run(t *testing.T, s Schedule) Result {
	t.Helper()
	var result Result
	virtual.Play(t, epoch, func(w *virtual.World) { result = play(w, s) })
	return result
}

func play(in *virtual.World, s Schedule) Result {
	w := &world{World: in, s: s, done: Result{Stats: Stats{}}}
	w.Choose = w.choose
	w.store = &store{Catalog: w.Server, w: w, parsed: map[string]parsed{},
		past: map[documentID][]version{}}
	w.oracle = newOracle(w)
	w.log.w = w
	for i := range s.Processes {
		w.slots = append(w.slots, nil)
		w.After(s.Processes[i].Start, func() { w.launch(i) })
		w.repeat(i)
	}
	w.planFaults(s.Faults)
	if len(s.Foreign) > 0 {
		w.startForeign()
	}
	if s.World != nil {
		s.World(&Outside{w: w})
	}
	w.After(s.Length, func() {
		w.endFaults()
		w.After(s.Quiet, func() { w.over = true })
	})
	for !w.over && !w.done.Failed() {
		w.step(w.Now() + time.Hour)
	}
	w.finish()
	w.done.Timeline = w.log.lines
	for _, p := range w.processes {
		if p.generation == 1 {
			w.done.CallsOf = append(w.done.CallsOf, p.calls)
		}
	}
	return w.done
}

// closeLimit is the time within which all processes must close after the quiet time.
const closeLimit = 5 * time.Minute

// finish closes all processes and checks that no locks remain. Then it ends all goroutines.
func (w *world) finish() {
	if !w.faultsOver {
		w.endFaults()
	}
	w.ended = true
	w.log.add("all processes close")
	limit := w.Now() + closeLimit
	if w.foreign != nil {
		w.foreign.stop(false)
	}
	for _, p := range w.processes {
		if !p.Dead {
			w.At(w.Now(), p.Index, p.stop)
		}
	}
	w.oracle.checkNoGhosts()
	failed := w.done.Failed()
	for (w.alive() > 0 || w.underWay > 0) && w.Now() < limit {
		w.step(limit)
	}
	switch {
	case failed:
	case w.alive() > 0:
		w.oracle.violated("I8", "a process did not close within %v", closeLimit)
	default:
		w.oracle.checkClosed()
	}
	w.done.Stats["minutes"] = int(w.Now().Minutes())
	for _, p := range w.processes {
		p.bury()
	}
	w.Drain(w.step)
}

// step checks the rules and runs one event that is due. If no event is due, step waits for the next
// event, at most until limit.
func (w *world) step(limit time.Duration) {
	w.Step(limit, func() {
		w.oracle.check()
		for _, rule := range w.always {
			rule()
		}
	})
}

// launch starts a new process in place i. It does nothing after the run has ended.
func (w *world) launch(i int) {
	if w.ended {
		return
	}
	p := newProcess(w, i)
	w.processes = append(w.processes, p)
	w.slots[i] = p
	w.log.add("%s starts", p)
	p.Go(p.run)
}

// repeat schedules the later starts of a process that is a job.
func (w *world) repeat(i int) {
	p := w.s.Processes[i]
	if p.Every == 0 {
		return
	}
	for at := p.Start + p.Every; at < w.s.Length+w.s.Quiet; at += p.Every {
		w.After(at, func() {
			if w.slots[i].over() {
				w.launch(i)
			}
		})
	}
}

func (w *world) alive() int {
	n := 0
	for _, p := range w.processes {
		if !p.Dead {
			n += p.Running()
		}
	}
	return n
}

func (w *world) endFaults() {
	w.log.add("everything heals")
	w.faultsOver = true
	for _, p := range w.slots {
		if p != nil {
			p.endFaults()
		}
	}
}

// choose returns the index of the next of several simultaneous events. With a Seed, the choice is
// random: first a process, then one of its events. If Seed is 0, the process with the lowest index
// is next, and its events keep their order.
func (w *world) choose(due []*virtual.Event) int {
	byOwner := map[int][]int{} // indexes of the events, by process
	for i, e := range due {
		byOwner[e.Owner] = append(byOwner[e.Owner], i)
	}
	owners := slices.Sorted(maps.Keys(byOwner))
	if w.s.Seed == 0 {
		return byOwner[owners[0]][0]
	}
	owner := owners[0]
	if len(owners) > 1 {
		owner = owners[w.chance("order", due[0].At, w.choices)%uint64(len(owners))]
		w.choices++
	}
	own := byOwner[owner]
	return own[w.chance("own order", due[0].At, uint64(owner+1))%uint64(len(own))]
}

// chance returns a random number that depends only on the seed and the arguments. So the rest of a
// run changes little when Shrink removes a fault.
func (w *world) chance(what string, at time.Duration, n uint64) uint64 {
	h := w.s.Seed*0x9e3779b97f4a7c15 + uint64(at)*0xbf58476d1ce4e5b9 + n*0x94d049bb133111eb
	for _, c := range []byte(what) {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}
