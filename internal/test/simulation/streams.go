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

// A stream sends the grants of a process. Each notice of grants is an event. A late notice delays
// the later ones. If the stream breaks, the notices in transit are lost.
type stream struct {
	p       *process
	process string // process id in the grants
	arrived chan []catalog.Grant
	closed  atomic.Bool

	// Only the event loop uses these fields.
	latest time.Duration // arrival time of the last notice in transit
	broken bool          // the stream sends nothing more
}

var _ catalog.GrantStream = (*stream)(nil)

// GrantStream implements [catalog.Queues].
func (v view) GrantStream(_ context.Context, process string) (catalog.GrantStream, error) {
	const most = 1000 // no process leaves as many notices unread
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

// notify sends the grants in a changed lock document to the streams of the granted processes.
func (s *store) notify(name string, was, is bson.Raw) {
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

// send sends a notice of grants. The faults of commands also strike notices. A fault that loses a
// command breaks the stream.
func (w *world) send(s *stream, name string, grants []catalog.Grant) {
	p := s.p
	c := &call{p: p, op: fault.Notice, subject: name}
	c.recordSend()
	k := w.delivery(c)
	w.log.add("%s is sent a grant of %q%s", p, name, c.note)
	if k.crash {
		p.crash()
	}
	if k.pause > 0 {
		p.pause(k.pause, false)
	}
	if k.failure != nil || k.loseReply {
		s.sever()
		return
	}
	s.deliver(k.request+k.reply, func() {
		if !s.broken {
			s.arrived <- grants
		}
	})
}

// deliver schedules a delivery after the duration d. A delivery never overtakes an earlier one.
func (s *stream) deliver(d time.Duration, do func()) {
	w := s.p.w
	s.latest = max(s.latest, w.Now()+d)
	w.At(s.latest, s.p.Index, func() { s.p.WhenRunning(do) })
}

func (s *stream) sever() {
	if !s.broken {
		s.broken = true
		s.deliver(0, func() { close(s.arrived) })
	}
}

// severStreams breaks the streams of a process, or all streams if p is nil.
func (w *world) severStreams(p *process) {
	for _, s := range w.store.streams {
		if p == nil || s.p == p {
			s.sever()
		}
	}
}
