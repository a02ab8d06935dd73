package waitqueue

import (
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// This file is the lines inside the process: contenders that have yet to enter a lock document. The
// first of each line looks whether there is room, the others sleep.

// A localLine is those who ask for one lock with one limit. Those who ask for another limit stand
// in another line: they are not to wait for each other.
type localLine struct {
	name   string
	limit  int32
	single bool // of one who stands in no line, see Aside
	places []*Place
	room   chan struct{} // there may be room in the document now; for the first of the line
	shut   atomic.Bool   // there was no room at the last answer: look before the next entering
}

// A Place is one of those in a line of a process.
type Place struct {
	Turn  chan struct{} // closed when it is the first of its line
	Since time.Duration // monotonic
	// Circle has room for one: the deadlock, in words, that it has to break.
	Circle chan []string

	line   *localLine
	party  catalog.Participant // as it would stand in the document, with a session that is only known here
	search schedule            // the search for deadlocks alone has it
}

// First reports whether it is the first of its line.
func (p *Place) First() bool {
	select {
	case <-p.Turn:
		return true
	default:
		return false
	}
}

// Room returns the channel that tells the first of the line that there may be room in the document
// now.
func (p *Place) Room() <-chan struct{} { return p.line.room }

// Shut reports whether the line found no room at its last answer, so that the first looks before it
// enters.
func (p *Place) Shut() bool { return p.line.shut.Load() }

// SetShut notes whether there is room.
func (p *Place) SetShut(shut bool) { p.line.shut.Store(shut) }

// Join takes the last place of a line. as is who asks: its mode, its limit, and what it holds
// meanwhile.
func (q *Queue) Join(name string, as catalog.Participant) *Place { return q.join(name, as, false) }

// Aside takes a place of its own, for a caller that waits for a lock and stands in no line: those
// who search for deadlocks see it.
func (q *Queue) Aside(name string, as catalog.Participant) *Place { return q.join(name, as, true) }

func (q *Queue) join(name string, as catalog.Participant, single bool) *Place {
	limit := as.Limit
	as.TS = bson.NewObjectID()
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.lines[name], func(l *localLine) bool {
		return !single && !l.single && l.limit == limit
	})
	if i < 0 {
		i = len(q.lines[name])
		q.lines[name] = append(q.lines[name],
			&localLine{name: name, limit: limit, single: single, room: make(chan struct{}, 1)})
	}
	l := q.lines[name][i]
	now := q.Clock.Now()
	as.Since = catalog.NotedSince(now.Wall.Add(q.skew()))
	p := &Place{
		line: l, party: as, Since: now.Mono,
		Turn: make(chan struct{}), Circle: make(chan []string, 1),
	}
	l.places = append(l.places, p)
	if len(l.places) == 1 {
		close(p.Turn)
	}
	if len(as.Holds) > 0 {
		q.seek()
	}
	return p
}

func (q *Queue) skew() time.Duration {
	if q.Skew == nil {
		return 0
	}
	return q.Skew()
}

// Leave gives a place up; again it does nothing. If it was the first, the next one has its turn.
func (q *Queue) Leave(p *Place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := p.line
	i := slices.Index(l.places, p)
	if i < 0 {
		return
	}
	l.places = slices.Delete(l.places, i, i+1)
	switch {
	case i == 0 && len(l.places) > 0:
		close(l.places[0].Turn)
	case len(l.places) == 0:
		others := slices.DeleteFunc(q.lines[l.name], func(o *localLine) bool { return o == l })
		if q.lines[l.name] = others; len(others) == 0 {
			delete(q.lines, l.name)
		}
	}
}

// Opened says that somebody left a lock or its line: the first of each line enters.
func (q *Queue) Opened(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines[name] {
		l.shut.Store(false)
		select {
		case l.room <- struct{}{}:
		default: // told before
		}
	}
}
