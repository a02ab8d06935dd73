package takeover_test

import (
	"math"
	"testing"
	"time"

	"mongodlm/takeover"
)

// The watch rule counts from reply to send, by the smaller of two clocks.
func TestDecide_WatchRule(t *testing.T) {
	t.Parallel()
	only := policy(mode(takeover.WatchOnly))
	longer := func(e *takeover.Evidence) { e.PingTakeover = time.Hour }
	less := func(e *takeover.Evidence) { e.Recorded, e.PingTakeover = time.Second, time.Second }
	slow := func(e *takeover.Evidence) { e.Received += time.Minute }
	check(t, []row{
		{
			name: "first look at a fresh ping", first: look(time.Second), policy: only,
			verdict: takeover.Held, remaining: limit, says: "pinged 1.01s ago",
		},
		{
			name: "first look at an old ping", first: look(night), policy: only,
			verdict: takeover.Watch, remaining: limit,
		},
		{
			name: "ping of two intervals is silent", first: look(2 * interval), policy: only,
			verdict: takeover.Watch, remaining: limit,
		},
		{
			name: "ping of almost two intervals is fresh", first: look(2*interval - trip),
			policy: only, verdict: takeover.Held, remaining: limit,
		},
		{
			name:   "ping of the takeover time is silent, whatever the interval",
			first:  look(limit, func(e *takeover.Evidence) { e.PingInterval = time.Hour }),
			policy: only, verdict: takeover.Watch, remaining: limit,
		},
		{ // a reading of the server from shortly before the ping
			name: "ping a little in the future is fresh", first: look(0, ping(5*time.Second)),
			policy: only, verdict: takeover.Held, remaining: limit, says: "pinged 0s ago",
		},
		{
			name: "one nanosecond short", first: look(0), now: look(limit + trip - 1),
			policy: only, verdict: takeover.Watch, remaining: 1,
		},
		{
			name: "to the nanosecond", first: look(0), now: look(limit + trip), policy: only,
			verdict: takeover.Take, rule: "watch", says: "unchanged for 15m0s of 15m0s",
		},
		{ // B7
			name: "counts from the reply of the first look", first: look(0, slow),
			now: look(limit + trip), policy: only, verdict: takeover.Watch, remaining: time.Minute,
		},
		{ // B7
			name: "counts to the sending of the last look", first: look(0),
			now: look(limit, slow), policy: only, verdict: takeover.Watch, remaining: trip,
		},
		{
			name: "default mode", first: look(0), now: look(limit + trip),
			verdict: takeover.Take, rule: "watch",
		},
		{ // A3
			name: "server stepped forward", first: look(0),
			now: look(5*time.Second, serverOff(20*time.Minute)), policy: only,
			verdict: takeover.Watch, remaining: limit - 5*time.Second + trip,
			says: "contender's clock 4.98s, server's clock 20m5s",
		},
		{ // A5
			name: "server's clock stands still", first: look(0),
			now: look(night, serverOff(-night)), policy: only,
			verdict: takeover.Held, remaining: limit,
		},
		{
			name: "server's clock slower than the contender's", first: look(0),
			now: look(night, serverOff(-night+limit-1)), policy: only,
			verdict: takeover.Watch, remaining: 1,
		},
		{
			name: "server unknown at the first look", first: look(0, noServer),
			now: look(limit + trip), policy: only, verdict: takeover.Take, rule: "watch",
			says: "server's clock unknown",
		},
		{
			name: "server unknown at the last look", first: look(0),
			now: look(limit+trip, noServer), policy: only, verdict: takeover.Take, rule: "watch",
		},
		{
			name: "server unknown, one nanosecond short", first: look(0, noServer),
			now: look(limit+trip-1, noServer), policy: only,
			verdict: takeover.Watch, remaining: 1,
		},
		{ // F17
			name: "foreign holder", first: look(0, foreign), now: look(limit+trip, foreign),
			verdict: takeover.Take, rule: "watch",
		},
		{ // F17
			name: "foreign holder has its own time", first: look(0, foreign),
			now:     look(limit+trip, foreign),
			policy:  policy(func(p *takeover.Policy) { p.ForeignTakeover = time.Hour }),
			verdict: takeover.Watch, remaining: time.Hour - limit,
		},
		{
			name: "foreign takeover time is not for our holders", first: look(0),
			now:     look(limit + trip),
			policy:  policy(func(p *takeover.Policy) { p.ForeignTakeover = time.Hour }),
			verdict: takeover.Take, rule: "watch",
		},
		{
			name: "contender has the longer takeover time", first: look(0, less),
			now: look(limit+trip-1, less), policy: only, verdict: takeover.Watch, remaining: 1,
		},
		{
			name: "ping records the longer takeover time", first: look(0, longer),
			now: look(limit+trip, longer), policy: only,
			verdict: takeover.Watch, remaining: time.Hour - limit,
		},
		{ // A2
			name: "contender's clock 20 minutes behind", first: look(0, wallOff(-20*time.Minute)),
			now: look(limit+trip, wallOff(-20*time.Minute)), verdict: takeover.Take, rule: "watch",
		},
		{ // F16
			name: "ping a minute in the future", first: look(0, ping(time.Minute)),
			now: look(limit+trip, ping(time.Minute)), verdict: takeover.Take, rule: "watch",
		},
		{ // F16
			name: "ping ten years in the future", first: look(0, ping(87600*time.Hour)),
			now:     look(limit+trip, ping(87600*time.Hour)),
			verdict: takeover.Take, rule: "watch",
		},
		{
			name: "second look was sent before the first was answered", first: look(0, slow),
			now: look(time.Second), policy: only, verdict: takeover.Held, remaining: limit,
		},
		{
			name:  "reply before the sending counts from the sending",
			first: look(0, noServer, func(e *takeover.Evidence) { e.Received = 0 }),
			now:   look(limit-1, noServer), policy: only, verdict: takeover.Watch, remaining: 1,
		},
		{
			name:   "the same look twice, with a reply before the sending",
			first:  look(night, noServer, func(e *takeover.Evidence) { e.Received = 0 }),
			policy: only, verdict: takeover.Watch, remaining: limit,
		},
		{
			name:  "monotonic clock at its ends",
			first: look(0, func(e *takeover.Evidence) { e.Sent, e.Received = -1<<63, -1<<63 }),
			now: look(limit, func(e *takeover.Evidence) {
				e.Sent, e.Received = math.MaxInt64, math.MaxInt64
			}),
			policy: only, verdict: takeover.Take, rule: "watch",
		},
		{
			name: "monotonic clock at its ends, the wrong way round",
			first: look(0, func(e *takeover.Evidence) {
				e.Sent, e.Received = math.MaxInt64, math.MaxInt64
			}),
			now: look(limit, func(e *takeover.Evidence) { e.Sent, e.Received = -1<<63, -1<<63 }),

			policy: only, verdict: takeover.Watch, remaining: limit,
		},
		{
			name: "a takeover time of 292 years", first: look(0), now: look(night),
			policy: policy(mode(takeover.WatchOnly), func(p *takeover.Policy) {
				p.Takeover = math.MaxInt64
			}),
			verdict: takeover.Watch, remaining: math.MaxInt64 - night + trip,
			says: "of more than 292 years",
		},
	})
}

// For arbitrary values in the documents only equality matters, and no figure overflows. A15, F16.
func TestDecide_WatchRule_ExtremeTimes(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]time.Time{
		"year 1":                   time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC),
		"the zero time":            {},
		"1970":                     time.UnixMilli(0),
		"9999":                     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		"292278994, the last Date": time.UnixMilli(math.MaxInt64),
		"the first Date":           time.UnixMilli(math.MinInt64),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			odd := func(e *takeover.Evidence) { e.Ping, e.Local = at, at }
			first := takeover.Decide(look(0, odd), look(0, odd), policy())
			if first.Verdict == takeover.Take || first.Verdict == takeover.Held {
				t.Errorf("first look: %+v", first)
			}
			last := takeover.Decide(look(0, odd), look(limit+trip, odd), policy())
			if last.Verdict != takeover.Take || last.Rule != "watch" {
				t.Errorf("after the takeover time: %+v", last)
			}
			server := func(e *takeover.Evidence) { e.Server = at }
			still := takeover.Decide(look(0, server), look(night, server), policy())
			if !at.IsZero() && still.Verdict == takeover.Take {
				t.Errorf("server's clock stands still at %v: %+v", at, still)
			}
			checkReason(t, first.Reason)
			checkReason(t, last.Reason)
			checkReason(t, still.Reason)
		})
	}
}
