package takeover

import (
	"fmt"
	"time"
)

// A Sight is what an earlier contender saw of a silent process and left for those who come after
// it, so that a job that tries for twenty seconds in a new process each night does not begin its
// watch anew each time. The zero value is none. No generation of mongos had it: their processes
// lived for long.
type Sight struct {
	Seq    int64     // the number of the ping that it saw
	Server time.Time // the server's clock at its look
	Local  time.Time // that contender's wall clock when the reply was there
	By     string    // its process id; empty when there is none
}

// sightIntervals is for how many ping intervals of the holder a sight must be old. An own watch
// counts three on a monotonic clock; two are enough here, since whoever left the sight saw the ping
// two intervals old already, and two pairs of clocks stand behind each interval.
const sightIntervals = 2

// Sighting returns what a contender leaves that has this look at a process; ok is false when it
// leaves nothing: the policy does not ask for witnesses, the process is not silent or cannot be
// condemned, the clocks do not say the same, or somebody has left something that counts.
func (e Evidence) Sighting(by string, p Policy) (s Sight, ok bool) {
	j := judgement{first: e, last: e, now: e, p: p, takeover: takeoverTime(e, p)}
	switch {
	case p.Validate() != nil || p.Rule != Witnesses, !e.Held || e.Malformed != "" ||
		e.Condemned != "" || e.Lease,
		!j.witnessed() || e.Foreign(), j.silence() < upTo(j.takeover, j.interval(), 2),
		apart(e.Server, e.Wall) > j.tolerance():
		return Sight{}, false
	}
	if seen, counts := j.sighted(); counts && seen >= -j.tolerance() {
		return Sight{}, false
	}
	return Sight{Seq: e.Seq, Server: e.Server, Local: e.Wall, By: by}, true
}

// silence is the age of the ping by the server's clock.
func (j *judgement) silence() time.Duration { return j.now.Server.Sub(j.now.Ping) }

// sighted returns for how long the ping has stood still since an earlier contender left what it
// saw: by the server's clock and by those of the two contenders, whichever is less. ok is false
// when nothing was left that counts: it speaks of another ping, or the clocks of that look did not
// say the same.
func (j *judgement) sighted() (d time.Duration, ok bool) {
	s := j.now.Sight
	if s.By == "" || s.Seq != j.now.Seq || s.Server.IsZero() || s.Local.IsZero() ||
		apart(s.Server, s.Local) > j.tolerance() {
		return 0, false
	}
	byServer, byContenders := j.now.Server.Sub(s.Server), minus(j.now.Wall.Sub(s.Local),
		roundTrip(j.now))
	return min(byServer, byContenders), true
}

// sightedLongEnough answers for a ping of which all witnesses say that it is old enough: need is
// how long the sight must still get, zero when it is there, watch when there is none.
func (j *judgement) sightedLongEnough(watch time.Duration) (need time.Duration, words string) {
	seen, ok := j.sighted()
	if !ok {
		return watch, ""
	}
	enough := upTo(j.takeover, j.interval(), sightIntervals)
	words = fmt.Sprintf("; %s saw the same ping %s ago, %s are enough",
		printable(j.now.Sight.By, idLimit), figure(max(seen, 0)), figure(enough))
	return max(0, min(watch, minus(enough, seen))), words
}
