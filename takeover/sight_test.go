package takeover_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"mongodlm/takeover"
)

const two = 2 * interval

// sight adds the observation of a contender that read at the given time after noon.
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

// If all clocks agree, a contender takes the lock two ping intervals after another contender has
// recorded the silence of the holder, and not before.
func TestDecide_SightRule(t *testing.T) {
	t.Parallel()
	due := night + two + trip // the second contender's read; its clock counts from reply to send
	ahead := func(d time.Duration) func(*takeover.Sight) {
		return func(s *takeover.Sight) { s.Local = s.Local.Add(d) }
	}
	server := func(d time.Duration) func(*takeover.Sight) {
		return func(s *takeover.Sight) { s.Server = s.Server.Add(d) }
	}
	check(t, []row{
		takes("two intervals", "witnesses", look(due, sight(night)), look(due, sight(night))).
			saying(`db9:1:1:x saw the same ping 1m0s ago, 1m0s are enough`),
		once("one nanosecond short", watched, 1, look(due-1, sight(night))),
		once("of the ping before", watched, three,
			look(due, sight(night, func(s *takeover.Sight) { s.Seq-- }))),
		once("without a contender", watched, three,
			look(due, sight(night, func(s *takeover.Sight) { s.By = "" }))),
		once("without a server's clock", watched, three,
			look(due, sight(night, func(s *takeover.Sight) { s.Server = time.Time{} }))),
		once("without a clock of its own", watched, three,
			look(due, sight(night, func(s *takeover.Sight) { s.Local = time.Time{} }))),
		once("its contender's clock was far behind", watched, three,
			look(due, sight(night, ahead(-time.Hour)))),
		once("its contender's clock was far ahead", watched, three,
			look(due, sight(night, ahead(time.Hour)))),
		once("its contender's clock was a little ahead", watched, 10*time.Second,
			look(due, sight(night, ahead(10*time.Second)))),
		once("the server's clock was a little ahead", watched, 10*time.Second-trip,
			look(due, sight(night, server(10*time.Second)))),
		once("in the future", watched, three, look(due, sight(2*night))),
		once("of one that lives", held, limit, look(time.Second, sight(-night))),
		once("of one that is not silent for long enough", watched, limit,
			look(limit-time.Minute, sight(two))),
		once("watch only uses none", watched, limit, look(due, sight(night))).
			by(policy(mode(takeover.WatchOnly))),
		once("not of a foreign holder", watched, limit, look(due, sight(night), foreign)),
		once("the holder's clock says it lives", skewed, limit,
			look(due, sight(night), local(night))),
	})
}

// A contender records an observation in the ping document of a process only if the process is
// silent and can be condemned.
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
		"server unknown":                              {e: look(night, noServer)},
		"own clock far from the server's":             {e: look(night, wallOff(time.Minute))},
		"another contender has left one":              {e: look(night, sight(two))},
		"another contender has left one at this time": {e: look(night, sight(night))},
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

// If one clock is wrong, a lock is taken only after two conditions are met. The holder's ping is as
// old as the takeover time. Two ping intervals, minus the allowed skew, have passed since another
// contender recorded its observation.
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
