package takeover

import (
	"cmp"
	"math"
	"time"
)

// An Observation is a watch in progress: its first read and its last one. The zero value is a watch
// without a read. It is a value and pure: [Observation.Look] returns the next one and does not
// change the old one, so goroutines that share it need a lock of the caller.
//
// Keep one per [Evidence.Subject]. 2.0.0 kept it inside each lock object, where short-lived ones
// never got to fifteen minutes; 2.0.1 and later kept one per process and lock name.
type Observation struct {
	first, last Evidence
	begun       bool
}

// Look adds a read and judges it with [Decide]. It sets now.LongestGap itself: a pause runs from
// the reply of one read to the sending of the next. After a decision with Restart the read is the
// first of a new watch. Free and Malformed end the watch, as mongos 2.0 and later reset it whenever
// they found the lock free.
//
// Primary and Server, where the read does not know them, are kept from the read before, so that
// such a read hides no election and no step of the server's clock.
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

// First returns the first read of the watch; ok is false before it.
func (o Observation) First() (first Evidence, ok bool) { return o.first, o.begun }

// Unchanged returns for how long the evidence has been unchanged, by the smaller of the
// contender's clock and the server's.
func (o Observation) Unchanged() time.Duration {
	watched, _, _ := watchedFor(o.first, o.last)
	return watched
}

// unknown is a time that no clock has measured.
const unknown = time.Duration(-1)

// watchedFor returns how long a contender may count between two reads. By its own monotonic clock
// that is from the reply of the first (R1) to the sending of the present one (R2): zero for the
// same read twice and for reads that overlap. By the server's clock it is unknown where one of the
// reads does not know it. The smaller of both counts, so that neither a step of the server's clock
// nor a contender's clock that stopped can make it too much. mongos 2.0 to 6.0 took the server's
// clock alone, and with it every step.
func watchedFor(first, now Evidence) (watched, own, server time.Duration) {
	own = max(minus(now.Sent, replied(first)), 0)
	if first.Server.IsZero() || now.Server.IsZero() {
		return own, own, unknown
	}
	server = max(now.Server.Sub(first.Server), 0)
	return min(own, server), own, server
}

// replied returns the contender's monotonic clock at the reply of a read, never before its sending.
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
