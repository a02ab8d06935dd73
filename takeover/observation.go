package takeover

import (
	"cmp"
	"math"
	"time"
)

// An Observation is a watch in progress: its first and its last read. The zero value is a watch
// without a read. An Observation is immutable: [Observation.Look] returns the next one.
//
// Keep one Observation for each [Evidence.Subject]. mongos 2.0.0 kept an observation in each lock
// object, so the watch of a short-lived object never reached fifteen minutes.
type Observation struct {
	first, last Evidence
	begun       bool
}

// Look adds a read and judges it with [Decide]. It sets the field LongestGap of this read to the
// longest pause from the reply of one read to the send of the next. If Decide returns a decision
// with Restart, this read is the first of a new watch. Free and Malformed end the watch.
//
// If Primary or Server is unknown in this read, Look keeps the value of the previous read. So a
// later read still shows an election, or a step of the server's clock.
func (o Observation) Look(now Evidence, p Policy) (Observation, Decision) {
	now.LongestGap = 0
	if !o.begun {
		o = Observation{first: now, last: now, begun: true}
	}
	now.LongestGap = max(o.last.LongestGap, minus(now.Sent, replied(o.last)))
	d := decide(o.first, o.last, now, p)
	switch {
	case d.Verdict == Free || d.Verdict == Malformed:
		return Observation{}, d
	case d.Restart:
		now.LongestGap = 0
		o.first = now
	}
	now.Primary = cmp.Or(now.Primary, o.last.Primary)
	if now.Server.IsZero() {
		now.Server = o.last.Server
	}
	o.last = now
	return o, d
}

// First returns the first read of the watch. ok is false if there is none.
func (o Observation) First() (first Evidence, ok bool) { return o.first, o.begun }

// Unchanged returns the time for which the evidence has been unchanged: the smaller of the times by
// the contender's and the server's clock.
func (o Observation) Unchanged() time.Duration {
	watched, _, _ := watchedFor(o.first, o.last)
	return watched
}

// unknown marks a time that no clock has measured.
const unknown = time.Duration(-1)

// watchedFor returns the time between two reads that a contender may count: the smaller of own and
// server. The result own is by the contender's monotonic clock, from the reply of the first read
// (R1 in docs/safety.md) until the present read was sent (R2), or 0 if the reads overlap. The
// result server is by the server's clock, or unknown. mongos 2.0 to 6.0 used only the server's
// clock.
func watchedFor(first, now Evidence) (watched, own, server time.Duration) {
	own = max(minus(now.Sent, replied(first)), 0)
	if first.Server.IsZero() || now.Server.IsZero() {
		return own, own, unknown
	}
	server = max(now.Server.Sub(first.Server), 0)
	return min(own, server), own, server
}

// replied returns the contender's monotonic time at the reply of a read, which is at least the time
// of the send.
func replied(e Evidence) time.Duration { return max(e.Sent, e.Received) }

// minus returns a - b. If that overflows, it returns the largest or smallest duration.
func minus(a, b time.Duration) time.Duration {
	d := a - b
	switch {
	case a >= 0 && b < 0 && d < 0:
		return math.MaxInt64
	case a < 0 && b > 0 && d >= 0:
		return math.MinInt64
	}
	return d
}
