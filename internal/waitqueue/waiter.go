package waitqueue

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/contend"
)

// A Manner is how one waits.
type Manner int

// The manners. Who stands by wants the lock only when its holder is gone, and does not count in
// Oldest. One aside of all waits for a lock and stands in no line: those who search for deadlocks
// see it.
const (
	InLine Manner = iota
	Standby
	Aside
)

// A Waiter is who waits for a lock. A call of Lock is two of them, one after the other: a place in
// a line of its process (Join, Turn, Leave), and a session that stands in the line of the document
// (Enter, Stands, Granted, Exit).
type Waiter struct {
	Name   string
	manner Manner
	party  catalog.Participant // as in the document; that of a place has a session that is only known here

	// Granted has room for one: a session is granted once. So has Fate: why it must not wait any
	// longer; a place is told of a deadlock alone.
	Granted chan catalog.Grant
	Fate    chan Fate
	// Turn is closed when a place is the first of its Line, which a session has none of.
	Turn chan struct{}
	Line *LocalLine
	// AtMost is how long a session may wait, 0 where nothing bounds that. Set it before Stands.
	AtMost time.Duration

	told   bool     // of its grant; the queue's mu guards it
	search schedule // the search for deadlocks alone has it

	mu     sync.Mutex    // guards the fields below
	since  time.Duration // monotonic time at which the place was taken, or the session came to stand
	stands bool          // it stands in the line of the document: the loop looks after it
	behind int           // how many turns were before its own when it entered
	place  int           // and by what was read last
	seen   time.Duration // since when it is known to be so many, monotonic
	looked bool          // scene is the loop's
	half   time.Duration // its lock is looked at after this at the latest, see Stands
	scene  *contend.Scene
}

// A Fate is why a waiter must not wait any longer: one of three.
type Fate struct {
	Err     error    // with which a new call would be refused as well
	Circle  []string // a deadlock, in words, that it has to break
	Removed bool     // its place is gone: it may enter again
}

// A LocalLine is those of a process who ask for one lock with one limit and have yet to enter its
// document. The first looks whether there is room, the others sleep. Those who ask for another
// limit stand in another line: they are not to wait for each other.
type LocalLine struct {
	Room chan struct{} // there may be room in the document now; for the first of the line
	Shut atomic.Bool   // there was no room at the last answer: look before the next entering

	limit  int32
	single bool // of one who stands in no line
	places []*Waiter
}

// Join takes the last place of a line, or one aside of all. as is who asks: its mode, its limit, and
// what it holds meanwhile.
func (q *Queue) Join(name string, as catalog.Participant, manner Manner) *Waiter {
	aside := manner == Aside
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.lines[name], func(l *LocalLine) bool {
		return !aside && !l.single && l.limit == as.Limit
	})
	if i < 0 {
		i = len(q.lines[name])
		q.lines[name] = append(q.lines[name],
			&LocalLine{limit: as.Limit, single: aside, Room: make(chan struct{}, 1)})
	}
	l := q.lines[name][i]
	now := q.Clock.Now()
	as.TS, as.Since = bson.NewObjectID(), catalog.NotedSince(now.Wall.Add(q.Skew()))
	w := &Waiter{
		Name: name, manner: manner, party: as, Line: l, since: now.Mono,
		Turn: make(chan struct{}), Fate: make(chan Fate, 1),
	}
	l.places = append(l.places, w)
	if len(l.places) == 1 {
		close(w.Turn)
	}
	if len(as.Holds) > 0 {
		q.seek()
	}
	return w
}

// First reports whether a place is the first of its line.
func (w *Waiter) First() bool {
	select {
	case <-w.Turn:
		return true
	default:
		return false
	}
}

// Leave gives a place up; again it does nothing. If it was the first, the next one has its turn.
func (q *Queue) Leave(w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := w.Line
	i := slices.Index(l.places, w)
	if i < 0 {
		return
	}
	l.places = slices.Delete(l.places, i, i+1)
	switch {
	case i == 0 && len(l.places) > 0:
		close(l.places[0].Turn)
	case len(l.places) == 0:
		others := slices.DeleteFunc(q.lines[w.Name], func(o *LocalLine) bool { return o == l })
		if q.lines[w.Name] = others; len(others) == 0 {
			delete(q.lines, w.Name)
		}
	}
}

// Opened says that somebody left a lock or its line: the first of each line enters.
func (q *Queue) Opened(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines[name] {
		l.Shut.Store(false)
		select {
		case l.Room <- struct{}{}:
		default: // told before
		}
	}
}

// Enter makes a session known before it is sent, so that a grant is never missed. It does not stand
// in a line yet.
func (q *Queue) Enter(r catalog.Request, manner Manner) *Waiter {
	w := &Waiter{
		Name: r.Name, manner: manner,
		party:   catalog.Participant{TS: r.TS, Process: r.Process, Limit: r.Limit, Holds: r.Holds},
		Granted: make(chan catalog.Grant, 1), Fate: make(chan Fate, 1),
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inside[r.TS] = w
	return w
}

// Stands says that a session stands in its line now, as the lock document shows: from here on the
// loop looks after it. Where its time is short, and this process knows neither the turns of the lock
// nor who is in its way, the lock is looked at after half of that time: the process may live for no
// longer, as a job that cron starts.
func (q *Queue) Stands(w *Waiter, lock catalog.Lock) {
	now, half := q.Clock.Now().Mono, forEver
	if w.AtMost != 0 && q.turn(w.Name) == 0 && !q.Judge.Keeps(w.Name) {
		half = w.AtMost / 2
	}
	w.mu.Lock()
	w.stands, w.since, w.seen, w.half = true, now, now, half
	w.place = max(w.placeIn(lock.Waiters), 0)
	w.behind = w.place
	w.scene = contend.Pictured(lock)
	w.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moved = now
	if !q.attends && !q.closing() {
		q.attends = true
		q.Go(func() { newLoop(q).run() }) // ends when nobody waits, or with Closed
	}
	select {
	case q.wake <- struct{}{}: // look at the list again
	default: // it will
	}
	if len(w.party.Holds) > 0 {
		q.seek()
	}
}

// placeIn returns how many turns of others come before its own in a line, -1 when it does not stand
// there. Readers that stand one behind the other have their turn together.
func (w *Waiter) placeIn(line []catalog.Participant) int {
	place := -1
	for i, p := range line {
		if i == 0 || p.Mode != catalog.Shared || line[i-1].Mode != catalog.Shared {
			place++
		}
		if p.TS == w.party.TS {
			return place
		}
	}
	return -1
}

// standsAt notes its place, none when it is less than 0.
func (w *Waiter) standsAt(place int, now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if place >= 0 && place != w.place {
		w.place, w.seen = place, now
	}
}

// Exit ends a session, whatever became of it.
func (q *Queue) Exit(w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.inside, w.party.TS)
}

// Scene returns the latest picture of the lock, nil before there is one.
func (w *Waiter) Scene() *contend.Scene {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.scene
}

// Since returns the monotonic time at which it took its place, or entered; zero before a session is
// known to stand.
func (w *Waiter) Since() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since
}

// standing reports whether it stands in the line of the document.
func (w *Waiter) standing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stands
}

// tell ends the stay of a waiter in the line. What was told first counts.
func (w *Waiter) tell(f Fate) {
	select {
	case w.Fate <- f:
	default:
	}
}
