package simulation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/clock"
)

// A world is one run of a schedule.
type world struct {
	s     Schedule
	base  clock.Clock
	start time.Duration
	mem   *memcatalog.Catalog
	store *store
	slots []*process // the latest process in each place
	lives []*process // every process there was
	log   timeline
	judge *oracle
	done  Result

	faults     []*armed
	foreigners []*foreign
	ids        uint64 // object ids that the world made
	healed     bool
	// underWay counts requests on their way to the store that are not later than their limit.
	underWay int
	primary  int

	mu      sync.Mutex // guards agenda, timers, posts, running
	agenda  agenda
	timers  []*event // set since the last event, not in the agenda yet
	posts   []*call
	running int // processes that have not ended

	wake    chan struct{} // something was entered into the agenda or posted
	options []int         // number of choices at every instant with several processes
	when    []time.Duration

	server struct {
		mu   sync.Mutex // guards step
		step time.Duration
	}
}

// A Result is what became of a run.
type Result struct {
	Violations []Violation
	Timeline   []string
	Stats
	// CallsOf is the number of commands of the first process in each place.
	CallsOf []int
	// Options is the number of choices at every instant at which several processes had an event, and
	// When those instants.
	Options []int
	When    []time.Duration
}

// Failed reports whether an oracle fired.
func (r Result) Failed() bool { return len(r.Violations) > 0 }

// Run plays a schedule. It must not be called inside a testing/synctest bubble: it makes one.
func Run(t *testing.T, s Schedule) Result {
	t.Helper()
	var result Result
	synctest.Test(t, func(*testing.T) { result = play(s) })
	return result
}

func play(s Schedule) Result {
	w := &world{s: s, base: clock.System(), wake: make(chan struct{}, 1)}
	w.start = w.base.Now().Mono
	w.mem = memcatalog.New(memcatalog.Options{Now: w.serverNow, Primary: "primary 0"})
	w.store = &store{Catalog: w.mem, w: w, parsed: map[string]parsed{}}
	w.judge = newOracle(w)
	w.log.w = w
	for i := range s.Processes {
		w.slots = append(w.slots, nil)
		w.after(s.Processes[i].Start, func() { w.launch(i) })
		w.repeat(i)
	}
	w.arm(s.Faults)
	for _, f := range s.Foreign {
		w.startForeign(f)
	}
	if s.World != nil {
		s.World(&Outside{w: w})
	}
	end := false
	w.after(s.Length, func() {
		w.heal()
		w.after(s.Quiet, func() { end = true })
	})
	w.loop(func() bool { return end })
	w.finish()
	w.done.Timeline = w.log.lines
	w.done.Options, w.done.When = w.options, w.when
	for _, p := range w.lives {
		if p.life == 1 {
			w.done.CallsOf = append(w.done.CallsOf, p.calls)
		}
	}
	return w.done
}

// closeLimit is how long the processes of a healthy world may take to close.
const closeLimit = 5 * time.Minute

// finish closes all processes in order and sees what they leave behind, then lets the dead go.
func (w *world) finish() {
	if !w.healed {
		w.heal()
	}
	w.log.add("all processes close")
	limit := w.now() + closeLimit
	for _, f := range w.foreigners {
		f.stop(false)
	}
	for _, p := range w.lives {
		if !p.dead {
			w.at(w.now(), p.index, p.stop)
		}
	}
	w.judge.noGhosts()
	failed := w.done.Failed()
	for (w.alive() > 0 || w.underWay > 0) && w.now() < limit {
		w.step(limit)
	}
	switch {
	case failed:
	case w.alive() > 0:
		w.judge.violated("I8", "a process did not close within %v", closeLimit)
	default:
		w.judge.closed()
	}
	w.done.Simulated = w.now()
	w.log.end()
	for _, p := range w.lives {
		p.bury()
	}
	for limit = w.now() + 1000*time.Hour; w.count() > 0; {
		if w.now() > limit {
			panic("simulation: a dead process does not end: " + w.s.Name)
		}
		w.step(w.now() + time.Hour)
	}
}

// loop runs events until done says so or an oracle fires.
func (w *world) loop(done func() bool) {
	for !done() && !w.done.Failed() {
		w.step(w.now() + time.Hour)
	}
}

// step waits until everybody is blocked, asks the oracles, and runs the next event, if one is due
// before limit.
func (w *world) step(limit time.Duration) {
	synctest.Wait()
	select {
	case <-w.wake:
	default:
	}
	w.admitPosts()
	w.judge.look()
	w.mu.Lock()
	w.enterTimers()
	at, some := w.agenda.next()
	now := w.now()
	if some && at <= now {
		e := w.agenda.take(w.choose)
		w.mu.Unlock()
		w.done.Events++
		e.run()
		return
	}
	w.mu.Unlock()
	if !some || at > limit {
		at = limit
	}
	t := w.base.NewTimer(at - now)
	defer t.Stop()
	select {
	case <-t.C():
	case <-w.wake:
	}
}

func (w *world) now() time.Duration { return w.base.Now().Mono - w.start }

func (w *world) add(e *event) {
	w.mu.Lock()
	if e.timer != nil {
		w.timers = append(w.timers, e)
	} else {
		w.agenda.add(e)
	}
	w.mu.Unlock()
	w.poke()
}

// enterTimers enters the timers that were set since the last event into the agenda, in an order that does
// not hang on which goroutine was first. The caller holds mu.
func (w *world) enterTimers() {
	slices.SortStableFunc(w.timers, func(a, b *event) int {
		return cmp.Or(a.owner-b.owner, cmp.Compare(a.timer.site, b.timer.site), cmp.Compare(a.at, b.at))
	})
	for _, e := range w.timers {
		w.agenda.add(e)
	}
	w.timers = w.timers[:0]
}

func (w *world) at(at time.Duration, owner int, run func()) {
	w.add(&event{at: at, owner: owner, run: run})
}

// after lets something happen in the world, outside of all processes.
func (w *world) after(d time.Duration, run func()) { w.at(w.now()+d, -1, run) }

func (w *world) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// serverNow is the server's clock.
func (w *world) serverNow() time.Time {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	return epoch.Add(w.now() + w.server.step)
}

func (w *world) stepServer(d time.Duration) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.server.step += d
}

// launch starts a new process in a place.
func (w *world) launch(i int) {
	p := newProcess(w, i)
	w.lives = append(w.lives, p)
	w.slots[i] = p
	w.log.add("%s starts", p)
	w.mu.Lock()
	w.running++
	w.mu.Unlock()
	go func() { // ends when the run ends: see finish
		defer func() {
			w.mu.Lock()
			w.running--
			p.gone = true
			w.mu.Unlock()
		}()
		p.live()
	}()
}

// repeat starts a job again and again.
func (w *world) repeat(i int) {
	p := w.s.Processes[i]
	if p.Every == 0 {
		return
	}
	for at := p.Start + p.Every; at < w.s.Length+w.s.Quiet; at += p.Every {
		w.after(at, func() {
			if w.slots[i].over() {
				w.launch(i)
			}
		})
	}
}

// count returns how many processes have not ended, dead ones too.
func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running
}

// alive returns how many living processes have not ended.
func (w *world) alive() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, p := range w.lives {
		if !p.dead && !p.gone {
			n++
		}
	}
	return n
}

// heal ends every fault.
func (w *world) heal() {
	w.log.add("everything heals")
	w.healed = true
	for _, p := range w.slots {
		if p != nil {
			p.heal()
		}
	}
}

// ready returns the posted calls in an order that does not hang on the Go scheduler.
func (w *world) ready() []*call {
	w.mu.Lock()
	posts := w.posts
	w.posts = nil
	w.mu.Unlock()
	slices.SortStableFunc(posts, compareCalls)
	return posts
}

func (w *world) admitPosts() {
	for _, c := range w.ready() {
		c.p.whenRunning(func() { w.admit(c) })
	}
}

var background = context.Background()

func (w *world) primaryName() string { return fmt.Sprintf("primary %d", w.primary) }
