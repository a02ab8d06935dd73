package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/fault"
)

// A stream sends grants to a process. Each notice is a separate event. It may be late, and then
// delays the later notices. The stream may break with notices in transit.
type stream struct {
	p       *process
	process string // process id in the grants

	// The loop of the world owns these fields.
	transit []notice
	latest  time.Duration // arrival time of the last notice in transit
	broken  bool          // the stream sends nothing more

	mu     sync.Mutex // guards the rest
	there  [][]catalog.Grant
	over   bool
	closed bool
	wake   chan struct{}
}

// A notice has the grants of one change of a lock. A notice without grants reports that the stream
// broke.
type notice struct{ grants []catalog.Grant }

var _ catalog.GrantStream = (*stream)(nil)

func newStream(p *process, id string) *stream {
	return &stream{p: p, process: id, wake: make(chan struct{}, 1)}
}

var errBroken = errors.New("the stream broke on purpose")

// Next implements [catalog.GrantStream].
func (s *stream) Next(ctx context.Context) ([]catalog.Grant, error) {
	for {
		s.mu.Lock()
		there, over := s.there, s.over
		if len(there) > 0 {
			s.there = there[1:]
		}
		s.mu.Unlock()
		switch {
		case len(there) > 0:
			return there[0], nil
		case over:
			return nil, fmt.Errorf("notices for %q: %w: %w", s.process, catalog.ErrUnavailable, errBroken)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, fmt.Errorf("notices for %q: %w", s.process, ctx.Err())
		}
	}
}

// Close implements [catalog.GrantStream].
func (s *stream) Close(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *stream) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// open adds a stream, which receives all later changes.
func (s *store) open(st *stream) { s.streams = append(s.streams, st) }

// tell sends the new grants of a lock document to the streams of their processes.
func (s *store) tell(name string, was, is bson.Raw) {
	s.streams = slices.DeleteFunc(s.streams, func(st *stream) bool {
		return st.broken || st.p.Dead || st.isClosed()
	})
	if len(s.streams) == 0 || is == nil || is.Lookup("grants").Equal(was.Lookup("grants")) {
		return
	}
	l, bad := catalog.ParseLock(is)
	if bad != nil {
		return
	}
	for _, st := range slices.Clone(s.streams) {
		grants := slices.DeleteFunc(slices.Clone(l.Grants), func(a catalog.Grant) bool {
			return a.Process != st.process
		})
		if len(grants) > 0 {
			s.w.send(st, name, grants)
		}
	}
}

// send puts a notice in transit. The faults of a command also strike a notice. A fault that would
// lose a command breaks the stream, and the notice is lost.
func (w *world) send(st *stream, name string, grants []catalog.Grant) {
	p := st.p
	c := &call{p: p, op: fault.Notice, subject: name, sent: w.Now()}
	p.calls++
	p.opCalls[c.op]++
	c.n, c.opN = p.calls, p.opCalls[c.op]
	k := w.course(c)
	w.log.add("%s %-12s %q: %s [%s]", p, c.op, name, showGrants(grants), c.note)
	if k.crashBefore || k.crashAfter {
		p.crash()
		return
	}
	if pause := max(k.pauseBefore, k.pauseAfter); pause > 0 {
		p.pause(pause, false)
	}
	switch {
	case st.broken:
	case k.refuse || k.drop || k.lose:
		w.breakStream(st)
	default:
		st.push(notice{grants}, k.request+k.reply)
	}
}

// push makes a notice arrive after d, and not before earlier notices.
func (s *stream) push(n notice, d time.Duration) {
	w := s.p.w
	s.latest = max(s.latest, w.Now()+d)
	s.transit = append(s.transit, n)
	w.At(s.latest, s.p.Index, func() { s.p.WhenRunning(s.arrive) })
}

// arrive delivers the first notice in transit to the process.
func (s *stream) arrive() {
	if len(s.transit) == 0 {
		return // the notice was lost
	}
	n := s.transit[0]
	s.transit = s.transit[1:]
	s.p.w.log.add("%s is told: %s", s.p, n)
	s.mu.Lock()
	if len(n.grants) == 0 {
		s.over = true
	} else {
		s.there = append(s.there, n.grants)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // the receiver is already awake
	}
}

func (n notice) String() string {
	if len(n.grants) == 0 {
		return "the stream broke"
	}
	return showGrants(n.grants)
}

// breakStream ends a stream. Notices in transit are lost.
func (w *world) breakStream(s *stream) {
	if s.broken {
		return
	}
	s.broken, s.transit = true, nil
	s.push(notice{}, 0)
}

// breakStreams ends the streams of a process, or all streams if p is nil.
func (w *world) breakStreams(p *process) {
	for _, s := range w.store.streams {
		if p == nil || s.p == p {
			w.breakStream(s)
		}
	}
}
