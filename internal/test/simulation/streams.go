package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
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
	arrived chan []catalog.Grant
	closed  atomic.Bool

	// The loop of the world owns these fields.
	latest time.Duration // arrival time of the last notice in transit
	broken bool          // the stream sends nothing more
}

var _ catalog.GrantStream = (*stream)(nil)

// GrantStream implements [catalog.Queues].
func (v view) GrantStream(_ context.Context, process string) (catalog.GrantStream, error) {
	const most = 1000 // more than a process ever leaves unread
	s := &stream{p: v.p, process: process, arrived: make(chan []catalog.Grant, most)}
	v.streams = append(v.streams, s)
	return s, nil
}

var errBroken = errors.New("the stream broke on purpose")

// Next implements [catalog.GrantStream].
func (s *stream) Next(ctx context.Context) ([]catalog.Grant, error) {
	var grants []catalog.Grant
	ok := true
	select {
	case grants, ok = <-s.arrived:
	default:
		select {
		case grants, ok = <-s.arrived:
		case <-ctx.Done():
			return nil, fmt.Errorf("notices for %q: %w", s.process, ctx.Err())
		}
	}
	if !ok {
		return nil, fmt.Errorf("notices for %q: %w: %w", s.process, catalog.ErrUnavailable, errBroken)
	}
	return grants, nil
}

// Close implements [catalog.GrantStream].
func (s *stream) Close(context.Context) { s.closed.Store(true) }

// tell sends the new grants of a lock document to the streams of their processes.
func (s *store) tell(name string, was, is bson.Raw) {
	s.streams = slices.DeleteFunc(s.streams, func(st *stream) bool {
		return st.broken || st.p.Dead || st.closed.Load()
	})
	if is == nil || is.Lookup("grants").Equal(was.Lookup("grants")) {
		return
	}
	l := s.read(name, is).lock
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
func (w *world) send(s *stream, name string, grants []catalog.Grant) {
	p := s.p
	c := &call{p: p, op: fault.Notice, subject: name}
	c.number()
	k := w.course(c)
	w.log.add("%s is sent a grant of %q%s", p, name, c.note)
	if k.crash {
		p.crash()
	}
	if k.pause > 0 {
		p.pause(k.pause, false)
	}
	if k.never != nil || k.lose {
		s.breaks()
		return
	}
	s.deliver(k.request+k.reply, func() {
		if !s.broken {
			s.arrived <- grants
		}
	})
}

// deliver runs do after d, and not before earlier notices arrive.
func (s *stream) deliver(d time.Duration, do func()) {
	w := s.p.w
	s.latest = max(s.latest, w.Now()+d)
	w.At(s.latest, s.p.Index, func() { s.p.WhenRunning(do) })
}

// breaks ends a stream. Notices in transit are lost.
func (s *stream) breaks() {
	if !s.broken {
		s.broken = true
		s.deliver(0, func() { close(s.arrived) })
	}
}

// breakStreams ends the streams of a process, or all streams if p is nil.
func (w *world) breakStreams(p *process) {
	for _, s := range w.store.streams {
		if p == nil || s.p == p {
			s.breaks()
		}
	}
}
