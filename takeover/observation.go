package takeover

import "time"

// An Observation is a watch in progress: the first look at a picture and the last one. The zero
// value has seen nothing yet. It is a value and pure: [Observation.Look] returns the next one and
// leaves the old as it was, so it needs a lock of the caller where several goroutines share it.
//
// Keep one per [Evidence.Subject]. 2.0.0 kept it inside each lock object, where short-lived ones
// never got to fifteen minutes; 2.0.1 and later kept one per process and lock name.
type Observation struct {
	first, last Evidence
	begun       bool
}

// Look adds a look and judges it with [Decide]. It fills now.LongestGap itself: a pause runs from
// the reply of one look to the sending of the next. After a decision with Restart the look is the
// first of a new watch. After Free and Malformed nothing is watched any more, as mongos 2.0 and
// later reset whenever they found the lock free.
//
// What a look could not tell (Primary, Server) is remembered from the look before, so that a blind
// look hides no election and no step of the server's clock.
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
	o.last = remember(o.last, now)
	return o, d
}

// First returns the look with which the watch began; ok is false when nothing is watched.
func (o Observation) First() (first Evidence, ok bool) { return o.first, o.begun }

// Unchanged returns for how long the picture has stood, by the smaller of the contender's clock and
// the server's.
func (o Observation) Unchanged() time.Duration { return watchedFor(o.first, o.last) }

// remember returns now with what only the look before knew of the server.
func remember(before, now Evidence) Evidence {
	if now.Primary == "" {
		now.Primary = before.Primary
	}
	if now.Server.IsZero() {
		now.Server = before.Server
	}
	return now
}
