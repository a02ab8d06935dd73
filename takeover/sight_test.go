package takeover_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"mongodlm/takeover"
)

const two = 2 * interval

// sight adds the record of a contender that read at the given time after noon.
func sight(at time.Duration, edits ...func(*takeover.Sight)) edit {
	return func(e *takeover.Evidence) {
		e.Sight = takeover.Sight{
			Seq: e.Seq, Server: noon.Add(at + trip/2), Local: noon.Add(at + trip), By: "db9:1:1:x",
		}
		for _, f := range edits {
			f(&e.Sight)
		}
	}
}

// A lock may be taken two intervals after the sight of another contender, if all witnesses agree.
func TestDecide_SightRule(t *testing.T) {
	t.Parallel()
	due := night + two + trip // the second contender's read; its clock counts from reply to send
	ahead := func(d time.Duration) func(*takeover.Sight) {
		return func(s *takeover.Sight) { s.Local = s.Local.Add(d) }
	}
	server := func(d time.Duration) func(*takeover.Sight) {
		return func(s *takeover.Sight) { s.Server = s.Server.Add(d) }
	}
	early := func(name string, v takeover.Verdict, remaining time.Duration, e takeover.Evidence) row {
		return row{name: name, first: e, verdict: v, remaining: remaining}
	}
	watch := takeover.Watch
	check(t, []row{
		{name: "two intervals", first: look(due, sight(night)), verdict: takeover.Take, rule: "witnesses",
			says: `db9:1:1:x saw the same ping 1m0s ago, 1m0s are enough`},
		early("one nanosecond short", watch, 1, look(due-1, sight(night))),
		early("of the ping before", watch, three,
			look(due, sight(night, func(s *takeover.Sight) { s.Seq-- }))),
		early("of a ping to come", watch, three,
			look(due, sight(night, func(s *takeover.Sight) { s.Seq++ }))),
		early("of nobody", watch, three, look(due, sight(night, func(s *takeover.Sight) { s.By = "" }))),
		early("without a server's clock", watch, three,
			look(due, sight(night, func(s *takeover.Sight) { s.Server = time.Time{} }))),
		early("without a clock of its own", watch, three,
			look(due, sight(night, func(s *takeover.Sight) { s.Local = time.Time{} }))),
		early("its contender's clock was far behind", watch, three,
			look(due, sight(night, ahead(-time.Hour)))),
		early("its contender's clock was far ahead", watch, three,
			look(due, sight(night, ahead(time.Hour)))),
		early("the server's clock was far behind", watch, three,
			look(due, sight(night, server(-time.Hour)))),
		early("its contender's clock was a little ahead", watch, 10*time.Second,
			look(due, sight(night, ahead(10*time.Second)))),
		early("the server's clock was a little ahead", watch, 10*time.Second-trip,
			look(due, sight(night, server(10*time.Second)))),
		early("in the future", watch, three, look(due, sight(2*night))),
		early("of one that lives", takeover.Held, limit, look(time.Second, sight(-night))),
		early("of one that is not silent for long enough", watch, limit,
			look(limit-time.Minute, sight(two))),
		{name: "watch only asks for none", first: look(due, sight(night)),
			policy: policy(mode(takeover.WatchOnly)), verdict: watch, remaining: limit},
		{name: "not of a foreign holder", first: look(due, sight(night), foreign), verdict: watch,
			remaining: limit},
		early("the holder's clock says it lives", takeover.Skewed, limit,
			look(due, sight(night), local(night))),
		early("the second contender's clock is ahead", takeover.Skewed, limit,
			look(due, sight(night), wallOff(time.Hour))),
		early("the server's clock is ahead", takeover.Skewed, limit,
			look(due, sight(night), serverOff(time.Hour))),
	})
}

// A read leaves a sight only for a silent process that can be condemned.
func TestEvidence_Sighting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		e     takeover.Evidence
		rule  takeover.Rule
		leave bool
	}{
		"silent":             {e: look(two), leave: true},
		"not yet silent":     {e: look(two - trip)},
		"alive":              {e: look(time.Second)},
		"silent, watch only": {e: look(night), rule: takeover.WatchOnly},
		"foreign":            {e: look(night, foreign)},
		"no ping":            {e: look(night, noPing)},
		"condemned": {e: look(night, func(e *takeover.Evidence) {
			e.Condemned = "x"
		})},
		"server unknown":                     {e: look(night, noServer)},
		"own clock far from the server's":    {e: look(night, wallOff(time.Minute))},
		"somebody has left one":              {e: look(night, sight(two))},
		"somebody has left one of this time": {e: look(night, sight(night))},
		"one of the ping before": {e: look(night,
			sight(two, func(s *takeover.Sight) { s.Seq-- })), leave: true},
		"one by a clock that was wrong": {e: look(night,
			sight(two, func(s *takeover.Sight) { s.Local = noon.Add(night) })), leave: true},
		"one of the future, as a clock stepped": {e: look(night, sight(night+time.Hour)), leave: true},
	} {
		s, ok := c.e.Sighting("me", policy(mode(c.rule)))
		want := takeover.Sight{Seq: c.e.Seq, Server: c.e.Server, Local: c.e.Wall, By: "me"}
		if ok != c.leave || ok && s != want {
			t.Errorf("%s: %+v, %v", name, s, ok)
		}
	}
}

// One clock with an arbitrary value does not make a sight unsafe: the server's clock, from the
// beginning or later, the holder's, or that of either contender. No lock is taken before its last
// ping is older than the takeover time. Neither is it taken before two intervals, minus the allowed
// difference of the clocks, have passed since the sight.
func TestDecide_SightAndOneLiar(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := policy()
		seen := drawn(t, "sight", two, 2*limit)
		now := seen + drawn(t, "since the sight", 0, limit)
		if rapid.Bool().Draw(t, "a living holder's sight") {
			now = max(seen, drawn(t, "age", 0, limit-1))
		}
		lie := rapid.OneOf(rapid.Map(rapid.Int64Range(-7200, 7200), func(n int64) time.Duration {
			return time.Duration(n) * time.Second
		}), rapid.Map(rapid.Int64Range(-300, 300), func(n int64) time.Duration {
			return time.Duration(n) * 100 * time.Millisecond
		})).Draw(t, "lie")
		e := look(now)
		var edits []func(*takeover.Sight)
		server := func(s *takeover.Sight) { s.Server = s.Server.Add(lie) }
		switch rapid.IntRange(0, 6).Draw(t, "liar") {
		case 0: // the server, all the time
			e.Ping, e.Server = e.Ping.Add(lie), e.Server.Add(lie)
			edits = append(edits, server)
		case 1: // after the ping
			e.Server = e.Server.Add(lie)
			edits = append(edits, server)
		case 2: // after the sight
			e.Server = e.Server.Add(lie)
		case 3: // when the sight was left
			edits = append(edits, server)
		case 4:
			e.Local = e.Local.Add(lie)
		case 5:
			e.Wall = e.Wall.Add(lie)
		case 6:
			edits = append(edits, func(s *takeover.Sight) { s.Local = s.Local.Add(lie) })
		}
		sight(seen, edits...)(&e)
		d := takeover.Decide(e, e, p)
		if d.Verdict != takeover.Take {
			return
		}
		if since := now - seen; now < limit-trip || since < two-skew-trip {
			t.Fatalf("taken at an age of %v, %v after the sight: %+v", now, since, d)
		}
	})
}
