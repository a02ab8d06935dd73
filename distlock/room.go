package distlock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/contend"
)

// room is where the waiters of this Manager are: those who stand in a lock document, waiting to be
// granted it, and before them those who have yet to enter it, one line for each name. So any number
// of waiters costs the looks of one, see attendant.go.
type room struct {
	m *Manager

	mu      sync.Mutex                // guards the fields below
	lines   map[string][]*line        // one for each limit that is asked for
	inside  map[bson.ObjectID]*waiter // known before the command is sent
	attends bool                      // the attendant is at work
	moved   time.Duration             // monotonic time of the last progress
	wake    chan struct{}

	calls, looks, questions episode // of failures, for the log
}

// A waiter is one session that stands in the line of a lock document, or is about to.
type waiter struct {
	a        *attempt
	won      chan catalog.Award // one place: a session is granted once
	fate     chan error         // one place: why it must not stand in the line any longer
	granted  bool               // it was told; the room's mu guards it
	doubtful bool               // the outcome of an entering is not known; of the waiting call alone

	mu     sync.Mutex     // guards the fields below
	since  time.Duration  // monotonic time of its entering
	search time.Duration  // monotonic time of the last search for a deadlock
	pause  time.Duration  // until the next one
	stands bool           // it stands in its line: the attendant looks after it
	place  int            // how many stood before it in the line at the last look
	looked bool           // scene is the attendant's
	scene  *contend.Scene // the latest picture of the lock
}

func newWaiter(a *attempt) *waiter {
	return &waiter{a: a, won: make(chan catalog.Award, 1), fate: make(chan error, 1)}
}

// tell ends the stay of a waiter in the line. What was told first counts.
func (w *waiter) tell(err error) {
	select {
	case w.fate <- err:
	default:
	}
}

func newRoom(m *Manager) *room {
	return &room{
		m: m, lines: map[string][]*line{}, inside: map[bson.ObjectID]*waiter{},
		wake:      make(chan struct{}, 1),
		calls:     episode{m: m, what: "waiting for a lock"},
		looks:     episode{m: m, what: "look at the locks that are waited for"},
		questions: episode{m: m, what: "question for grants"},
	}
}

// A line is those who have yet to enter a lock document. Those who ask for another limit stand in
// another line: they are not to wait for each other.
type line struct {
	name   string
	limit  int32
	places []*place
	room   chan struct{} // there may be room in the document now; for the first of the line
	shut   atomic.Bool   // there was no room at the last answer: look before the next entering
}

// A place is one of those in a line.
type place struct {
	line  *line
	turn  chan struct{} // closed when it is the first
	since time.Duration // monotonic
}

// join takes the last place of a line.
func (r *room) join(name string, limit int32) *place {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.lines[name], func(l *line) bool { return l.limit == limit })
	if i < 0 {
		i = len(r.lines[name])
		r.lines[name] = append(r.lines[name],
			&line{name: name, limit: limit, room: make(chan struct{}, 1)})
	}
	l := r.lines[name][i]
	p := &place{line: l, turn: make(chan struct{}), since: r.m.cfg.Clock.Now().Mono}
	l.places = append(l.places, p)
	if len(l.places) == 1 {
		close(p.turn)
	}
	return p
}

// leave gives a place up. If it was the first, the next one has its turn.
func (r *room) leave(p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := p.line
	i := slices.Index(l.places, p)
	if i < 0 {
		return // it has left already
	}
	l.places = slices.Delete(l.places, i, i+1)
	switch {
	case i == 0 && len(l.places) > 0:
		close(l.places[0].turn)
	case len(l.places) == 0:
		others := slices.DeleteFunc(r.lines[l.name], func(o *line) bool { return o == l })
		if r.lines[l.name] = others; len(others) == 0 {
			delete(r.lines, l.name)
		}
	}
}

// opened says that somebody left a lock or its line: whoever waits for a place enters.
func (r *room) opened(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lines[name] {
		l.shut.Store(false)
		select {
		case l.room <- struct{}{}:
		default: // told before
		}
	}
}

// enter makes a session known before it is sent, so that a grant is never missed.
func (r *room) enter(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside[w.a.grant.TS] = w
}

// exit ends a waiter, whatever became of it.
func (r *room) exit(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.inside, w.a.grant.TS)
}

// queued says that a session stands in its line now: from here on the attendant looks after it.
func (r *room) queued(w *waiter, lock catalog.Lock) {
	now := r.m.cfg.Clock.Now().Mono
	w.mu.Lock()
	w.stands, w.since = true, now
	w.place = slices.IndexFunc(lock.Waiters, func(p catalog.Party) bool { return p.TS == w.a.grant.TS })
	w.scene = contend.Pictured(lock)
	w.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved = now
	if !r.attends && !r.m.closing() {
		r.attends = true
		r.m.loops.Go(func() { newAttendant(r.m).run() }) // ends when nobody waits, or with Close
	}
	r.poke()
}

// poke makes the attendant look at its list again.
func (r *room) poke() {
	select {
	case r.wake <- struct{}{}:
	default: // it will
	}
}

// deliver tells the waiters of this Manager what was granted to them. Whoever was granted a lock left
// its line. What was granted to a session that waits no longer is being given back by whoever gave up,
// or is a ghost for the reaper.
func (r *room) deliver(awards []catalog.Award) {
	if len(awards) == 0 {
		return
	}
	own := r.m.Process()
	for _, a := range awards {
		r.mu.Lock()
		w := r.inside[a.TS]
		news := w != nil && !w.granted && w.a.grant.Process == a.Process
		if news {
			w.granted, r.moved = true, r.m.cfg.Clock.Now().Mono
		}
		r.mu.Unlock()
		if news {
			w.won <- a
		}
		if news || a.Process != own { // a step of this process granted it to another: that is news, too
			r.opened(a.Name)
		}
	}
}

// held says who is in the way of a waiter, as far as it knows.
func (w *waiter) held() *HeldError {
	w.mu.Lock()
	s := w.scene
	w.mu.Unlock()
	if s == nil {
		return &HeldError{Name: w.a.grant.Name, PingAge: -1, Reason: "its line could not be entered"}
	}
	return w.a.m.heldError(*s)
}

// waiters returns those who stand in line, by lock name, and the names.
func (r *room) waiters() (map[string][]*waiter, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	by := map[string][]*waiter{}
	for _, w := range r.inside {
		w.mu.Lock()
		standing := w.stands
		w.mu.Unlock()
		if standing {
			by[w.a.grant.Name] = append(by[w.a.grant.Name], w)
		}
	}
	names := make([]string, 0, len(by))
	for name := range by {
		names = append(names, name)
	}
	slices.Sort(names)
	return by, names
}

// stand waits until the place is the first of its line, or there will be no turn.
func (w *waiting) stand(ctx context.Context, turn <-chan struct{}) error {
	select {
	case <-turn:
		return nil
	default:
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.m.closed:
		return ErrClosed
	}
}
