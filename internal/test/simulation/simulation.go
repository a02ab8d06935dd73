package simulation

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"mongodlm/internal/test/virtual"
)

// A world is one run of a schedule.
type world struct {
	*virtual.World
	s     Schedule
	store *store
	slots []*process // the latest process in each place
	lives []*process // every process so far
	log   timeline
	judge *oracle
	done  Result

	faults  []*armed
	foreign *foreign // nil if none takes part
	healed  bool
	over    bool // the quiet time has passed
	ended   bool // no process starts from now on
	// underWay counts the requests in transit that arrive within their limit.
	underWay int
	always   []func() // checks of packages built on the lock
}

var background = context.Background()

// epoch is the true time at the start of a run.
var epoch = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// A Result is the outcome of a run.
type Result struct {
	Violations []Violation
	Timeline   []string
	Stats      Stats
	// CallsOf[i] is the number of commands of the first process in place i.
	CallsOf []int
	// Options[i] is the number of choices at the i-th instant with events of several processes.
	Options []int
}

// Failed reports whether an oracle reported a violation.
func (r Result) Failed() bool { return len(r.Violations) > 0 }

// Run plays a schedule in a new testing/synctest bubble. Do not call it inside of a bubble.
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
	w.judge = newOracle(w)
	w.log.w = w
	for i := range s.Processes {
		w.slots = append(w.slots, nil)
		w.After(s.Processes[i].Start, func() { w.launch(i) })
		w.repeat(i)
	}
	w.arm(s.Faults)
	if len(s.Foreign) > 0 {
		w.startForeign()
	}
	if s.World != nil {
		s.World(&Outside{w: w})
	}
	w.After(s.Length, func() {
		w.heal()
		w.After(s.Quiet, func() { w.over = true })
	})
	for !w.over && !w.done.Failed() {
		w.step(w.Now() + time.Hour)
	}
	w.finish()
	w.done.Timeline = w.log.lines
	for _, p := range w.lives {
		if p.life == 1 {
			w.done.CallsOf = append(w.done.CallsOf, p.calls)
		}
	}
	return w.done
}

// closeLimit is the time within which all processes must close when no fault is left.
const closeLimit = 5 * time.Minute

// finish closes all processes in order and checks that they leave no locks. Then it ends the
// goroutines of dead processes.
func (w *world) finish() {
	if !w.healed {
		w.heal()
	}
	w.ended = true
	w.log.add("all processes close")
	limit := w.Now() + closeLimit
	if w.foreign != nil {
		w.foreign.stop(false)
	}
	for _, p := range w.lives {
		if !p.Dead {
			w.At(w.Now(), p.Index, p.stop)
		}
	}
	w.judge.noGhosts()
	failed := w.done.Failed()
	for (w.alive() > 0 || w.underWay > 0) && w.Now() < limit {
		w.step(limit)
	}
	switch {
	case failed:
	case w.alive() > 0:
		w.judge.violated("I8", "a process did not close within %v", closeLimit)
	default:
		w.judge.closed()
	}
	w.done.Stats["minutes"] = int(w.Now().Minutes())
	w.log.end()
	for _, p := range w.lives {
		p.bury()
	}
	w.Drain(w.step)
}

// step runs the oracles and then the next event, if the event is due before limit.
func (w *world) step(limit time.Duration) {
	w.Step(limit, func() {
		w.judge.look()
		for _, rule := range w.always {
			rule()
		}
	})
}

// launch starts a new process in a place, unless the run is over.
func (w *world) launch(i int) {
	if w.ended {
		return
	}
	p := newProcess(w, i)
	w.lives = append(w.lives, p)
	w.slots[i] = p
	w.log.add("%s starts", p)
	p.Go(p.live)
}

// repeat starts a job again after each interval.
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

// alive returns the number of live processes that still run.
func (w *world) alive() int {
	n := 0
	for _, p := range w.lives {
		if !p.Dead {
			n += p.Running()
		}
	}
	return n
}

func (w *world) heal() {
	w.log.add("everything heals")
	w.healed = true
	for _, p := range w.slots {
		if p != nil {
			p.heal()
		}
	}
}

// choose selects the next event of one instant by the seed. Without a seed Turn and Pick of the
// schedule select the process, and the events of one process keep their order.
func (w *world) choose(due []*virtual.Event) int {
	heads := make([]int, 0, len(due))
	for i, e := range due {
		if !slices.ContainsFunc(heads, func(h int) bool { return due[h].Owner == e.Owner }) {
			heads = append(heads, i)
		}
	}
	slices.SortFunc(heads, func(a, b int) int { return cmp.Compare(due[a].Owner, due[b].Owner) })
	pick := 0
	if len(heads) > 1 {
		n := len(w.done.Options)
		w.done.Options = append(w.done.Options, len(heads))
		if w.s.Seed != 0 {
			pick = int(w.chance("order", due[0].At, uint64(n)) % uint64(len(heads)))
		} else if n == w.s.Turn {
			pick = w.s.Pick
		}
	}
	head := heads[pick]
	if w.s.Seed == 0 {
		return head
	}
	own := make([]int, 0, len(due))
	for i, e := range due {
		if e.Owner == due[head].Owner {
			own = append(own, i)
		}
	}
	return own[w.chance("own order", due[0].At, uint64(due[head].Owner+1))%uint64(len(own))]
}

// chance returns a number that depends only on the seed and the arguments. Removing one fault
// therefore changes as few other events as possible.
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
