package takeover_test

import (
	"math"
	"testing"
	"time"

	"mongodlm/takeover"
)

// The watch rule measures how long the ping has been unchanged: from the reply of the first read
// until the present read is sent. It uses the contender's clock or the server's clock, whichever
// gives the shorter time.
func TestDecide_WatchRule(t *testing.T) {
	t.Parallel()
	only := policy(mode(takeover.WatchOnly))
	patient := policy(func(p *takeover.Policy) { p.ForeignTakeover = time.Hour })
	ages := policy(mode(takeover.WatchOnly), func(p *takeover.Policy) { p.Takeover = math.MaxInt64 })
	longer := func(e *takeover.Evidence) { e.PingTakeover = time.Hour }
	less := func(e *takeover.Evidence) { e.Recorded, e.PingTakeover = time.Second, time.Second }
	slow := func(e *takeover.Evidence) { e.Received += time.Minute }
	rarely := func(e *takeover.Evidence) { e.PingInterval = time.Hour }
	unsent := func(e *takeover.Evidence) { e.Received = 0 }
	clock := func(at time.Duration) edit {
		return func(e *takeover.Evidence) { e.Sent, e.Received = at, at }
	}
	due, behind := limit+trip, wallOff(-20*time.Minute)
	check(t, []row{
		once("first read of a fresh ping", held, limit, look(time.Second)).by(only).
			saying("pinged 1.01s ago"),
		once("ping of two intervals is silent", watched, limit, look(2*interval)).by(only),
		once("ping of almost two intervals is fresh", held, limit, look(2*interval-trip)).by(only),
		once("ping of the takeover time is silent, whatever the interval", watched, limit,
			look(limit, rarely)).by(only),
		// The read's server time is earlier than the ping.
		once("ping a little in the future is fresh", held, limit, look(0, ping(5*time.Second))).
			by(only).saying("pinged 0s ago"),
		later("one nanosecond short", watched, 1, look(0), look(due-1)).by(only),
		takes("to the nanosecond", "watch", look(0), look(due)).by(only).
			saying("unchanged for 15m0s of 15m0s"),
		later("counts from the reply of the first read", watched, time.Minute, look(0, slow),
			look(due)).by(only), // B7
		later("counts to the sending of the last read", watched, trip, look(0), look(limit, slow)).
			by(only),
		later("server stepped forward", watched, limit-5*time.Second+trip, look(0),
			look(5*time.Second, serverOff(20*time.Minute))).by(only).
			saying("contender's clock 4.98s, server's clock 20m5s"), // A3
		later("server's clock stands still", held, limit, look(0), look(night, serverOff(-night))).
			by(only), // A5
		later("server's clock slower than the contender's", watched, 1, look(0),
			look(night, serverOff(-night+limit-1))).by(only),
		takes("server unknown at the first read", "watch", look(0, noServer), look(due)).by(only).
			saying("server's clock unknown"),
		takes("server unknown at the last read", "watch", look(0), look(due, noServer)).by(only),
		later("server unknown, one nanosecond short", watched, 1, look(0, noServer),
			look(due-1, noServer)).by(only),
		takes("foreign holder", "watch", look(0, foreign), look(due, foreign)), // F17
		later("foreign holder has its own time", watched, time.Hour-limit, look(0, foreign),
			look(due, foreign)).by(patient),
		takes("foreign takeover time is not for other holders", "watch", look(0), look(due)).by(patient),
		later("contender has the longer takeover time", watched, 1, look(0, less),
			look(due-1, less)).by(only),
		later("ping records the longer takeover time", watched, time.Hour-limit, look(0, longer),
			look(due, longer)).by(only),
		takes("contender's clock 20 minutes behind", "watch", look(0, behind), look(due, behind)), // A2
		takes("ping a minute in the future", "watch", look(0, ping(time.Minute)),
			look(due, ping(time.Minute))), // F16
		later("second read was sent before the first was answered", held, limit, look(0, slow),
			look(time.Second)).by(only),
		later("reply before the sending counts from the sending", watched, 1,
			look(0, noServer, unsent), look(limit-1, noServer)).by(only),
		takes("monotonic clock at its ends", "watch", look(0, clock(-1<<63)),
			look(limit, clock(math.MaxInt64))).by(only),
		later("monotonic clock at its ends, the wrong way round", watched, limit,
			look(0, clock(math.MaxInt64)), look(limit, clock(-1<<63))).by(only),
		later("a takeover time of 292 years", watched, math.MaxInt64-night+trip, look(0),
			look(night)).by(ages),
	})
}
