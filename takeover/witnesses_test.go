package takeover_test

import (
	"math"
	"testing"
	"time"

	"mongodlm/takeover"
)

const three = 3 * interval

// The witnesses rule takes a lock if all witnesses agree and the ping is unchanged for three
// intervals.
func TestDecide_WitnessesRule(t *testing.T) {
	t.Parallel()
	every := func(d time.Duration) edit {
		return func(e *takeover.Evidence) { e.PingInterval = d }
	}
	young := limit - trip/2 // exactly the takeover time by the server's clock
	due, short, rare := night+three+trip, every(10*time.Second), every(2*time.Minute)
	day := func(e *takeover.Evidence) { e.Recorded = 24 * time.Hour }
	both := func(e *takeover.Evidence) { serverOff(20 * time.Minute)(e); wallOff(20 * time.Minute)(e) }
	ages := policy(func(p *takeover.Policy) {
		p.Takeover, p.MaxClockSkew = math.MaxInt64, math.MaxInt64-1
	})
	check(t, []row{
		once("holder died last night, first read", watched, three, look(night)).
			saying("server 8h0m0.01s, contender 8h0m0s, holder 8h0m0.01s; unchanged for 0s of 1m30s"),
		later("one nanosecond short of three intervals", watched, 1, look(night), look(due-1)),
		takes("three intervals", "witnesses", look(night), look(due)),
		later("three intervals count from reply to send", watched, trip, look(night),
			look(due-trip)), // B7
		later("three intervals by the server's clock too", watched, 10*time.Second-trip, look(night),
			look(due, serverOff(-10*time.Second))),
		later("watch only", watched, limit-three, look(night), look(due)).
			by(policy(mode(takeover.WatchOnly))),
		once("ping just old enough", watched, three, look(limit)),
		once("ping not quite old enough for the contender", skewed, limit, look(limit-1)),
		once("ping not old enough for any witness", watched, limit, look(young-1)),
		takes("holder pings every 10 seconds", "witnesses", look(night, short),
			look(night+30*time.Second+trip, short)),
		later("holder pings every 2 minutes", watched, 6*time.Minute-three, look(night, rare),
			look(due, rare)),
		once("three intervals are never more than the takeover time", watched, limit,
			look(night, every(time.Hour))),
		// Three times this interval overflows to a negative number.
		once("an interval of 146 years", watched, limit, look(night, every(math.MaxInt64/2))),
		once("an allowed skew of 292 years", held, math.MaxInt64,
			look(time.Second, late(time.Minute))).by(ages),
		once("interval unknown", watched, three, look(night, every(0))),
		once("interval negative", watched, three, look(night, every(-time.Hour))),
		once("foreign holder is only watched", watched, limit, look(night, foreign)), // F17
		once("holder recorded a longer time than the ping is old", watched, 24*time.Hour,
			look(night, day)),
		once("server and contender stepped together: three intervals to go", watched, three,
			look(time.Second, both)), // A13
		later("server and contender stepped together: the holder's next ping ends it", held, limit,
			look(time.Second, both), look(three, pinged(interval, 8), both)).anew(),
	})
}

// If one witness is missing or wrong, no lock is taken before the takeover time.
func TestDecide_WitnessMissingOrLying(t *testing.T) {
	t.Parallel()
	const off = 20 * time.Minute
	second := time.Second
	var rows []row
	seen := func(name string, v takeover.Verdict, says string, e takeover.Evidence) {
		rows = append(rows, once(name, v, limit, e).saying(says))
	}
	seen("dead, server unknown", watched, "", look(night, noServer))
	seen("dead, local unknown", watched, "", look(night, noLocal))
	seen("dead, contender's clock unknown", watched, "", look(night, noWall))
	seen("alive, server unknown", watched, "", look(second, noServer))
	seen("alive, local unknown", held, "", look(second, noLocal))
	seen("alive, contender's clock unknown", held, "", look(second, noWall))
	seen("alive, local unknown, contender ahead", held, "",
		look(second, noLocal, wallOff(off)))

	seen("alive, contender ahead", skewed, "contender 20m1s", look(second, wallOff(off)))   // A1
	seen("alive, contender behind", skewed, "before the ping", look(second, wallOff(-off))) // A2
	seen("alive, server ahead", skewed, "server 20m1.01s", look(second, serverOff(off)))    // A3
	seen("alive, server behind", skewed, "before the ping", look(second, serverOff(-off)))  // A4
	seen("alive, holder behind", skewed, "holder 20m1.01s", look(second, local(-off)))      // A7
	seen("alive, holder ahead", skewed, "before the ping", look(second, local(off)))        // A6
	seen("alive, contender a little ahead", held, "", look(second, wallOff(skew)))
	seen("alive, contender a little behind", held, "", look(second, wallOff(-skew)))
	seen("alive, holder a little ahead", held, "", look(second, local(skew)))
	// The read's server time is a little earlier than the ping.
	seen("alive, server a little behind", held, "", look(second, serverOff(-skew)))

	seen("dead, contender behind", skewed, "differ too much", look(night, wallOff(-off)))
	seen("dead, server ahead", skewed, "differ too much", look(night, serverOff(off)))
	seen("dead, holder ahead", skewed, "disagree", look(night, local(night-second)))
	seen("dead, readings in the reason", skewed,
		"server's clock 2011-06-01T20:00:00.010Z, contender's 2011-06-01T20:20:00.020Z",
		look(night, wallOff(off)))
	// At the reply, the contender's clock is 10 ms ahead of the server's reading. The tolerance
	// includes half of the round trip, which is 10 ms.
	seen("dead, contender ahead by a nanosecond too much", skewed, "differ too much",
		look(night, wallOff(skew+1)))
	seen("ping a minute in the future", skewed, "before the ping", // F16
		look(0, ping(time.Minute)))
	seen("ping of the last Date", skewed, "before the ping",
		look(0, pingAt(time.UnixMilli(math.MaxInt64))))
	seen("local of the last Date", skewed, "before the ping",
		look(night, func(e *takeover.Evidence) { e.Local = time.UnixMilli(math.MaxInt64) }))
	seen("ping of the first Date, alive by local", skewed, "clocks disagree",
		look(second, pingAt(time.UnixMilli(math.MinInt64))))
	// The age of a ping does not include the time until the reply. Here the server answered while the
	// holder was alive, the server's clock was ahead, and the reply was late.
	seen("alive, server ahead, reply late", skewed, "contender 1s",
		look(second, serverOff(off), late(2*off)))
	// The contender's clock is ahead by the allowed difference, and the holder's clock is behind. So
	// only the server's clock shows that the ping is young.
	seen("almost old enough, all but the server's witness", skewed, "clocks disagree",
		look(limit-10*second, wallOff(20*second), local(-time.Minute)))
	seen("ping in the server's future alone", skewed, "before the ping",
		look(0, ping(time.Minute), wallOff(2*time.Minute)))
	// The holder pinged after the request was sent and before the reply.
	seen("alive, request late", held, "pinged",
		look(0, late(3*time.Minute), serverOff(3*time.Minute), pinged(3*time.Minute, 8)))
	// A holder without the field seq cannot be condemned, even if its ping document has the field
	// local.
	seen("dead, seq unknown, local known", watched, "", look(night, foreign, local(0)))
	check(t, rows)
}

// late returns an edit that delays the reply by d.
func late(d time.Duration) edit {
	return func(e *takeover.Evidence) {
		e.Received += d
		e.Wall = e.Wall.Add(d)
	}
}

// While the clocks contradict each other, only the watch rule takes a lock.
func TestDecide_Skewed_UntilTheWatchRule(t *testing.T) {
	t.Parallel()
	wrong, allowed := wallOff(20*time.Minute), wallOff(skew)
	first, due := look(night, wrong), night+limit+trip
	check(t, []row{
		later("three intervals are not enough", skewed, limit-three, first,
			look(night+three+trip, wrong)),
		later("one nanosecond short", skewed, 1, first, look(due-1, wrong)),
		takes("the takeover time", "watch", first, look(due, wrong)),
		takes("contender ahead by all that is allowed", "witnesses", look(night, allowed),
			look(night+three+trip, allowed)),
	})
}
