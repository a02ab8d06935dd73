package study

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/clock"
)

// noon is true time at the start of every play: a clock that is wrong is easily told from it.
var noon = time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

// way is how long a command, and its answer, are under way.
const way = 2 * time.Millisecond

// A world is one play of one case by one generation: the store, the processes, and one agenda of events.
// One event at a time happens, and the next one when every goroutine of the play is blocked again, so a
// play has the same course every time.
type world struct {
	generation Generation
	base       clock.Clock // the virtual time
	start      time.Duration
	store      *memcatalog.Catalog
	server     time.Duration // how far the server's clock is ahead of true time
	primary    int
	readOnly   bool // the server refuses to write
	processes  []*process
	stops      []*stop
	agenda     agenda
	parsed     map[string]document
	order      int
	ids        uint64 // object ids that the play made
	record     *record
	judge      *judge

	mu    sync.Mutex // guards posts
	posts []*event   // what goroutines have asked for since the last event
	wake  chan struct{}
}

// inVirtualTime runs play in a time of its own, which passes at once when everybody waits. The package
// testing is where Go has it; the zero value of its T serves outside of a test as well.
func inVirtualTime(play func()) {
	synctest.Test(new(testing.T), func(*testing.T) { play() })
}

// now is how long the play has lasted.
func (w *world) now() time.Duration { return w.base.Now().Mono - w.start }

// serverNow is the server's clock.
func (w *world) serverNow() time.Time { return noon.Add(w.now() + w.server) }

// An event is something that happens at one instant.
type event struct {
	at    time.Duration
	owner int    // index of the process, -1 for the world
	key   string // settles what is first of what one process asks for in one instant
	order int
	run   func()
}

// An agenda is the events to come, the earliest first.
type agenda []*event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(*event)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	*a = (*a)[:last]
	return e
}

// post asks for an event. Any goroutine may.
func (w *world) post(e *event) {
	w.mu.Lock()
	w.posts = append(w.posts, e)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// at lets something happen in the world, outside of all processes.
func (w *world) at(at time.Duration, run func()) { w.post(&event{at: at, owner: -1, run: run}) }

// admit enters what was asked for into the agenda, in an order that does not hang on Go's scheduler.
func (w *world) admit() {
	w.mu.Lock()
	posts := w.posts
	w.posts = nil
	w.mu.Unlock()
	slices.SortStableFunc(posts, func(a, b *event) int {
		return cmp.Or(a.owner-b.owner, cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at))
	})
	for _, e := range posts {
		w.order++
		e.order = w.order
		heap.Push(&w.agenda, e)
	}
}

// step waits until everybody is blocked, looks at the state of things, and lets the next event happen if it
// is due before limit.
func (w *world) step(limit time.Duration) {
	synctest.Wait()
	select {
	case <-w.wake:
	default:
	}
	w.admit()
	w.judge.look()
	now := w.now()
	if len(w.agenda) > 0 && w.agenda[0].at <= now {
		heap.Pop(&w.agenda).(*event).run()
		return
	}
	if len(w.agenda) > 0 {
		limit = min(limit, w.agenda[0].at)
	}
	next := w.base.NewTimer(limit - now)
	defer next.Stop()
	select {
	case <-next.C():
	case <-w.wake:
	}
}

// play plays a case and returns what became of it.
func play(c Case, g Generation) (p Play) {
	inVirtualTime(func() {
		w := &world{generation: g, base: clock.System(), wake: make(chan struct{}, 1),
			parsed: map[string]document{}}
		w.start = w.base.Now().Mono
		w.store = memcatalog.New(memcatalog.Options{Now: w.serverNow, Primary: "primary 0"})
		w.record = &record{w: w, versions: map[string][]byte{}, words: map[string]string{}}
		w.judge = &judge{w: w}
		s := &Stage{w: w}
		c.Play(s)
		for _, proc := range w.processes {
			w.at(proc.starts, proc.begin)
		}
		for w.now() < c.Length {
			w.step(c.Length)
		}
		w.judge.end()
		p = Play{Case: c.Name, Generation: g.Name, Length: c.Length,
			Outcome: w.judge.outcome(), Record: w.record.result()}
		w.bury()
	})
	return p
}

// bury ends all processes, so that the goroutines of the play end.
func (w *world) bury() {
	for _, p := range w.processes {
		p.bury()
	}
	for limit := w.now() + 1000*time.Hour; w.alive() > 0; {
		if w.now() > limit {
			panic("study: a process does not end")
		}
		w.step(w.now() + time.Hour)
	}
}

func (w *world) alive() (n int) {
	for _, p := range w.processes {
		n += int(p.running.Load())
	}
	return n
}
