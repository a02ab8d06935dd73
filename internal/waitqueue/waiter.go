package waitqueue

import (
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
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
	party  catalog.Participant // as in the document; the session of a place is only known here

	// Granted has room for one: a session is granted once. So has Fate: why it must not wait any
	// longer; a place is told of a deadlock alone.
	Granted chan catalog.Grant
	Fate    chan Fate
	// Turn is closed when a place is the first of its Line; a session has neither.
	Turn chan struct{}
	Line *LocalLine
	// LastTurn is the fence of the last turn that a waiting call of the process had of the lock before
	// this session: not of a try, nor of a call that had it at once by barging. 0 when it had none, or
	// it was forgotten: with the first turn that the process has of any lock when that is turnsKept
	// ago.
	LastTurn int64
	atMost   time.Duration // how long a session may wait, 0 where nothing bounds that

	search schedule // the search for deadlocks alone has it

	told   bool // of its grant; the queue's mu guards it, and stands
	stands bool // it stands in the line of the document: the loop looks after it

	// Set before a session stands, and when a place is taken.
	since  time.Duration // monotonic time of that
	behind int           // how many turns were before its own then
	half   time.Duration // its lock is looked at after this at the latest, see Stands

	// Scene is the latest picture of the lock, nil before there is one. From when a session stands the
	// loop alone writes it, and has the fields below.
	Scene  atomic.Pointer[contend.Scene]
	looked bool          // there is a picture of a look
	place  int           // how many turns are before its own, by what was read last
	seen   time.Duration // since when it is known to be so many, monotonic
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

// Join takes the last place of a line, or one aside of all. as is who asks: its mode, its limit,
// and what it holds meanwhile.
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
	if len(as.Holds) > 0 { // else nobody asks for these
		as.TS, as.Since = bson.NewObjectID(), catalog.NotedSince(now.Wall.Add(q.Skew()))
		q.seek()
	}
	w := &Waiter{
		Name: name, manner: manner, party: as, Line: l, since: now.Mono,
		Turn: make(chan struct{}), Fate: make(chan Fate, 1),
	}
	l.places = append(l.places, w)
	if len(l.places) == 1 {
		close(w.Turn)
	}
	return w
}

// Leave ends a session, whatever became of it, or gives a place up; again it does nothing. If the
// place was the first, the next one has its turn.
func (q *Queue) Leave(w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := w.Line
	if l == nil {
		delete(q.inside, w.party.TS)
		return
	}
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
func (q *Queue) Enter(r catalog.Request, manner Manner, atMost time.Duration) *Waiter {
	w := &Waiter{
		Name: r.Name, manner: manner, atMost: atMost,
		party:   catalog.Participant{TS: r.TS, Process: r.Process, Limit: r.Limit, Holds: r.Holds},
		Granted: make(chan catalog.Grant, 1), Fate: make(chan Fate, 1),
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	w.LastTurn = q.had[r.Name].fence
	q.inside[r.TS] = w
	return w
}

// Stands says that a session stands in its line now, as the lock document shows: from here on the
// loop looks after it. Where its time is short, and this process knows neither the turns of the
// lock nor who is in its way, the lock is looked at after half of that time: the process may live
// for no longer, as a job that cron starts.
func (q *Queue) Stands(w *Waiter, lock catalog.Lock) {
	now := q.Clock.Now().Mono
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moved = now
	w.stands, w.since, w.seen, w.half = true, now, now, forEver
	if w.atMost != 0 && q.turns[w.Name] == 0 && !q.Judge.Keeps(w.Name) {
		w.half = w.atMost / 2
	}
	w.standsIn(lock.Waiters, now)
	w.behind = w.place
	w.Scene.Store(contend.Pictured(lock))
	if !q.attends && !clock.Over(q.Closed) {
		q.attends = true
		q.Go(q.lookAfter) // ends when nobody waits, or with Closed
	}
	select {
	case q.wake <- struct{}{}: // look at the list again
	default: // it will
	}
	if len(w.party.Holds) > 0 {
		q.seek()
	}
}

// standsIn notes how many turns of others come before its own in a line, if it stands there.
// Readers that stand one behind the other have their turn together.
func (w *Waiter) standsIn(line []catalog.Participant, now time.Duration) {
	place := -1
	for i, p := range line {
		if i == 0 || p.Mode != catalog.Shared || line[i-1].Mode != catalog.Shared {
			place++
		}
		if p.TS == w.party.TS {
			if place != w.place {
				w.place, w.seen = place, now
			}
			return
		}
	}
}

// Since returns the monotonic time at which it took its place.
func (w *Waiter) Since() time.Duration { return w.since }

// tell ends the stay of waiters in the line. What was told first counts.
func tell(ws []*Waiter, f Fate) {
	for _, w := range ws {
		select {
		case w.Fate <- f:
		default:
		}
	}
}
