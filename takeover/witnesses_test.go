package takeover_test

import (
	"math"
	"testing"
	"time"

	"mongodlm/takeover"
)

const three = 3 * interval

// The shorter rule takes a lock if all witnesses agree and the ping is unchanged for three
// intervals.
func TestDecide_WitnessesRule(t *testing.T) {
	t.Parallel()
	every := func(d time.Duration) edit {
		return func(e *takeover.Evidence) { e.PingInterval = d }
	}
	young := limit - trip/2 // exactly the takeover time by the server's clock
	check(t, []row{
		{
			name: "holder died last night, first look", first: look(night),
			verdict: takeover.Watch, remaining: three,
			says: "server 8h0m0.01s, contender 8h0m0s, holder 8h0m0.01s; unchanged for 0s of 1m30s",
		},
		{
			name: "one nanosecond short of three intervals", first: look(night),
			now: look(night + three + trip - 1), verdict: takeover.Watch, remaining: 1,
		},
		{
			name: "three intervals", first: look(night), now: look(night + three + trip),
			verdict: takeover.Take, rule: "witnesses",
		},
		{ // B7
			name: "three intervals count from reply to send", first: look(night),
			now: look(night + three), verdict: takeover.Watch, remaining: trip,
		},
		{
			name: "three intervals by the server's clock too", first: look(night),
			now:     look(night+three+trip, serverOff(-10*time.Second)),
			verdict: takeover.Watch, remaining: 10*time.Second - trip,
		},
		{
			name: "watch only", first: look(night), now: look(night + three + trip),
			policy:  policy(mode(takeover.WatchOnly)),
			verdict: takeover.Watch, remaining: limit - three,
		},
		{
			name: "ping just old enough", first: look(limit),
			verdict: takeover.Watch, remaining: three,
		},
		{
			name: "ping not quite old enough for the contender", first: look(limit - 1),
			verdict: takeover.Skewed, remaining: limit,
		},
		{
			name: "ping not old enough for anybody", first: look(young - 1),
			verdict: takeover.Watch, remaining: limit,
		},
		{
			name: "holder pings every 10 seconds", first: look(night, every(10*time.Second)),
			now:     look(night+30*time.Second+trip, every(10*time.Second)),
			verdict: takeover.Take, rule: "witnesses",
		},
		{
			name: "holder pings every 2 minutes", first: look(night, every(2*time.Minute)),
			now:     look(night+three+trip, every(2*time.Minute)),
			verdict: takeover.Watch, remaining: 6*time.Minute - three,
		},
		{
			name:  "three intervals are never more than the takeover time",
			first: look(night, every(time.Hour)), verdict: takeover.Watch, remaining: limit,
		},
		{
			name:  "an interval of 292 years",
			first: look(night, every(math.MaxInt64)), verdict: takeover.Watch, remaining: limit,
		},
		{ // three times this value overflows to a negative number
			name:  "an interval of 146 years",
			first: look(night, every(math.MaxInt64/2)), verdict: takeover.Watch, remaining: limit,
		},
		{
			name: "an allowed skew of 292 years", first: look(time.Second, late(time.Minute)),
			policy: policy(func(p *takeover.Policy) {
				p.Takeover, p.MaxClockSkew = math.MaxInt64, math.MaxInt64-1
			}),
			verdict: takeover.Held, remaining: math.MaxInt64,
		},
		{
			name: "interval unknown", first: look(night, every(0)),
			verdict: takeover.Watch, remaining: three,
		},
		{
			name: "interval negative", first: look(night, every(-time.Hour)),
			verdict: takeover.Watch, remaining: three,
		},
		{ // F17
			name: "foreign holder is only watched", first: look(night, foreign),
			verdict: takeover.Watch, remaining: limit,
		},
		{
			name:    "holder recorded a longer time than the ping is old",
			first:   look(night, func(e *takeover.Evidence) { e.Recorded = 24 * time.Hour }),
			verdict: takeover.Watch, remaining: 24 * time.Hour,
		},
		{ // A13
			name:  "server and contender stepped together: three intervals to go",
			first: look(time.Second, serverOff(20*time.Minute), wallOff(20*time.Minute)),

			verdict: takeover.Watch, remaining: three,
		},
		{ // A13
			name:  "server and contender stepped together: the holder's next ping ends it",
			first: look(time.Second, serverOff(20*time.Minute), wallOff(20*time.Minute)),
			now: look(three, pinged(interval, 8), serverOff(20*time.Minute),
				wallOff(20*time.Minute)),
			verdict: takeover.Held, remaining: limit, restart: true,
		},
	})
}

// With one witness missing or wrong, no lock is taken before T, whether its holder is alive or
// dead.
func TestDecide_WitnessMissingOrLying(t *testing.T) {
	t.Parallel()
	const off = 20 * time.Minute
	second := time.Second
	var rows []row
	seen := func(name string, v takeover.Verdict, says string, e takeover.Evidence) {
		rows = append(rows, row{name: name, first: e, verdict: v, remaining: limit, says: says})
	}
	seen("dead, server unknown", takeover.Watch, "", look(night, noServer))
	seen("dead, local unknown", takeover.Watch, "", look(night, noLocal))
	seen("dead, contender's clock unknown", takeover.Watch, "", look(night, noWall))
	seen("alive, server unknown", takeover.Watch, "", look(second, noServer))
	seen("alive, local unknown", takeover.Held, "", look(second, noLocal))
	seen("alive, contender's clock unknown", takeover.Held, "", look(second, noWall))
	seen("alive, local unknown, contender ahead", takeover.Held, "",
		look(second, noLocal, wallOff(off)))

	// A1
	seen("alive, contender ahead", takeover.Skewed, "contender 20m1s", look(second, wallOff(off)))
	// A2
	seen("alive, contender behind", takeover.Skewed, "before the ping", look(second, wallOff(-off)))
	// A3
	seen("alive, server ahead", takeover.Skewed, "server 20m1.01s", look(second, serverOff(off)))
	// A4
	seen("alive, server behind", takeover.Skewed, "before the ping", look(second, serverOff(-off)))
	// A7
	seen("alive, holder behind", takeover.Skewed, "holder 20m1.01s", look(second, local(-off)))
	// A6
	seen("alive, holder ahead", takeover.Skewed, "before the ping", look(second, local(off)))
	seen("alive, contender a little ahead", takeover.Held, "", look(second, wallOff(skew)))
	seen("alive, contender a little behind", takeover.Held, "", look(second, wallOff(-skew)))
	seen("alive, holder a little ahead", takeover.Held, "", look(second, local(skew)))
	// The server's reading is from before the ping.
	seen("alive, server a little behind", takeover.Held, "", look(second, serverOff(-skew)))

	seen("dead, contender ahead", takeover.Skewed, "differ too much", look(night, wallOff(off)))
	seen("dead, contender behind", takeover.Skewed, "differ too much", look(night, wallOff(-off)))
	seen("dead, contender far behind", takeover.Skewed, "before the ping",
		look(night, wallOff(-2*night)))
	seen("dead, server ahead", takeover.Skewed, "differ too much", look(night, serverOff(off)))
	seen("dead, server far behind", takeover.Skewed, "before the ping",
		look(night, serverOff(-2*night)))
	seen("dead, holder ahead", takeover.Skewed, "disagree", look(night, local(night-second)))
	seen("dead, holder far ahead", takeover.Skewed, "before the ping", look(night, local(2*night)))
	seen("dead, readings in the reason", takeover.Skewed,
		"server's clock 2011-06-01T20:00:00.010Z, contender's 2011-06-01T20:20:00.020Z",
		look(night, wallOff(off)))
	// The contender's clock was 10 ms ahead at the reply, and half the round trip is allowed.
	seen("dead, contender ahead by a nanosecond too much", takeover.Skewed, "differ too much",
		look(night, wallOff(skew+1)))
	// F16
	seen("ping a minute in the future", takeover.Skewed, "before the ping",
		look(0, ping(time.Minute)))
	seen("ping of the last Date", takeover.Skewed, "less than -292 years",
		look(0, pingAt(time.UnixMilli(math.MaxInt64))))
	seen("local of the last Date", takeover.Skewed, "before the ping",
		look(night, func(e *takeover.Evidence) { e.Local = time.UnixMilli(math.MaxInt64) }))
	seen("ping of the first Date, alive by local", takeover.Skewed, "more than 292 years",
		look(second, pingAt(time.UnixMilli(math.MinInt64))))
	// The time until the reply is no age: the server answered while the holder was alive, the reply
	// came later, and the server's clock stepped.
	seen("alive, server ahead, reply late", takeover.Skewed, "contender 1s",
		look(second, serverOff(off), late(2*off)))
	// The contender is ahead by the allowed difference and the holder is behind, so the ping is
	// young only by the server's clock.
	seen("almost old enough, all but the server's witness", takeover.Skewed, "clocks disagree",
		look(limit-10*second, wallOff(20*second), local(-time.Minute)))
	seen("ping in the server's future alone", takeover.Skewed, "before the ping",
		look(0, ping(time.Minute), wallOff(2*time.Minute)))
	// The holder pinged between the read's send and its reply.
	seen("alive, request late", takeover.Held, "pinged",
		look(0, late(3*time.Minute), serverOff(3*time.Minute), pinged(3*time.Minute, 8)))
	// A holder without seq cannot be condemned, whatever other fields its document has.
	seen("dead, seq unknown, local known", takeover.Watch, "", look(night, foreign, local(0)))
	check(t, rows)
}

// late is a reply that arrived d later than usual.
func late(d time.Duration) edit {
	return func(e *takeover.Evidence) {
		e.Received += d
		e.Wall = e.Wall.Add(d)
	}
}

// While clocks contradict each other, only the watch rule takes a lock.
func TestDecide_Skewed_UntilTheWatchRule(t *testing.T) {
	t.Parallel()
	wrong := wallOff(20 * time.Minute)
	check(t, []row{
		{
			name: "three intervals are not enough", first: look(night, wrong),
			now:     look(night+three+trip, wrong),
			verdict: takeover.Skewed, remaining: limit - three,
		},
		{
			name: "one nanosecond short", first: look(night, wrong),
			now: look(night+limit+trip-1, wrong), verdict: takeover.Skewed, remaining: 1,
		},
		{
			name: "the takeover time", first: look(night, wrong), now: look(night+limit+trip, wrong),
			verdict: takeover.Take, rule: "watch",
		},
		{
			name:  "contender ahead by all that is allowed",
			first: look(night, wallOff(skew)), now: look(night+three+trip, wallOff(skew)),
			verdict: takeover.Take, rule: "witnesses",
		},
	})
}
