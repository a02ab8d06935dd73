package takeover

import (
	"cmp"
	"math"
	"time"
)

// An Observation is a watch in progress: its first read and its last one. The zero value is a watch
// without a read. It is an immutable value: [Observation.Look] returns the next Observation.
// Goroutines that share a variable with it need a lock.
//
// Keep one Observation per [Evidence.Subject]. mongos 2.0.0 kept it inside each lock object, so
// short-lived objects never reached fifteen minutes. 2.0.1 and later kept one per process and lock
// name.
type Observation struct {
	first, last Evidence
	begun       bool
}

// Look adds a read and judges it with [Decide]. It sets now.LongestGap itself: a pause lasts from
// the reply of one read to the send of the next. After a decision with Restart, the read is the
// first of a new watch. Free and Malformed end the watch. mongos 2.0 and later also reset the watch
// when the lock was free.
//
// If the read does not know Primary or Server, Look keeps the previous read's value. So the read
// hides no election and no step of the server's clock.
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

// Unchanged returns the time for which the evidence has been unchanged, by the smaller of the
// contender's clock and the server's.
func (o Observation) Unchanged() time.Duration {
	watched, _, _ := watchedFor(o.first, o.last)
	return watched
}

// unknown is a time that no clock has measured.
const unknown = time.Duration(-1)

// watchedFor returns the time that a contender may count between two reads. The contender's
// monotonic clock counts from the reply of the first read (R1) to the send of the present one (R2).
// That is zero for the same read twice and for overlapping reads. The time by the server's clock is
// unknown if one read does not know that clock. The smaller time counts, so that neither a step of
// the server's clock nor a stopped contender's clock makes it too long. mongos 2.0 to 6.0 used only
// the server's clock, with every step.
func watchedFor(first, now Evidence) (watched, own, server time.Duration) {
	own = max(minus(now.Sent, replied(first)), 0)
	if first.Server.IsZero() || now.Server.IsZero() {
		return own, own, unknown
	}
	server = max(now.Server.Sub(first.Server), 0)
	return min(own, server), own, server
}

// replied returns the contender's monotonic clock at the reply of a read, never before the send.
func replied(e Evidence) time.Duration { return max(e.Sent, e.Received) }

// minus returns a - b, saturated.
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
