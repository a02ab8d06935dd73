package study

import (
	"cmp"
	"slices"
	"time"
)

// A Message is a command on its way there and back. What never happened is 0.
type Message struct {
	Process, Server         int // of mirrored servers the place, from 0
	Kind                    string
	Sent, Arrived, Answered time.Duration
	Answer                  string
	changed                 bool // a document
}

// decides reports whether a message may have decided a play: it changed a document, was slow, or
// its answer never came.
func (m Message) decides() bool {
	slow := m.Answered == 0 || m.Answered-m.Sent > long
	return Kind(m.Kind).writes() && m.Kind != string(Ping) && m.Kind != string(Clean) &&
		(m.changed || slow)
}

// The decisive seconds of a play: so much before and after its moment, so much of it with all that
// decides nothing, and so many messages at most.
const (
	zoomBefore = 30 * time.Second
	zoomAfter  = 4 * time.Second
	zoomAll    = 500 * time.Millisecond
	zoomMost   = 14
)

// moment is when a play was decided: when there were two holders, a lock was ended by another hand,
// or an accident struck; else at the last decision, or when the last holder got the lock.
func (p Play) moment() (at time.Duration) {
	if p.Outcome.Two > 0 {
		return p.Outcome.TwoFrom
	}
	if ends := p.ends(); len(ends) > 0 {
		return ends[0].At
	}
	for _, m := range p.Marks {
		if m.Struck || m.Kind == "late" {
			at = m.At
		}
	}
	if at > 0 {
		return at
	}
	if m := p.last(func(m Mark) bool { return m.Kind == decided || m.Kind == watched }); m != nil {
		return m.At
	}
	for _, b := range p.Bars {
		if b.Kind == "holds" {
			at = max(at, b.From)
		}
	}
	return at
}

// decisive returns the messages that were under way around the moment of a play, the nearest ones
// where there are many.
func (p Play) decisive(all []*Message) (near []Message) {
	at := p.moment()
	off := func(m Message) time.Duration {
		return max(m.Sent-at, at-max(m.Sent, m.Arrived, m.Answered), 0)
	}
	for _, m := range all {
		within := m.Sent <= at+zoomAfter && max(m.Sent, m.Arrived, m.Answered) >= at-zoomBefore
		if within && (m.decides() || off(*m) <= zoomAll && m.Kind != string(Clean)) {
			near = append(near, *m)
		}
	}
	slices.SortStableFunc(near, func(a, b Message) int { return cmp.Compare(off(a), off(b)) })
	near = near[:min(zoomMost, len(near))]
	slices.SortStableFunc(near, func(a, b Message) int { return cmp.Compare(a.Sent, b.Sent) })
	return slices.Clip(near)
}

// zoomed is from when to when the messages of a play were under way, within its decisive seconds.
func (p Play) zoomed() (from, until time.Duration) {
	at := p.moment()
	from, until = at, at
	for _, m := range p.Messages {
		from = min(from, max(m.Sent, at-zoomBefore))
		until = max(until, min(max(m.Sent, m.Arrived, m.Answered), at+zoomAfter))
	}
	return from, until
}

// messageData are the messages as the page draws them: process, kind, answer, server, and the
// milliseconds at which each was sent, arrived, and was answered.
func (p Play) messageData() (data [][7]any) {
	for _, m := range p.Messages {
		data = append(data, [7]any{m.Process, m.Kind, m.Answer, m.Server, milliseconds(m.Sent),
			milliseconds(m.Arrived), milliseconds(m.Answered)})
	}
	return data
}
