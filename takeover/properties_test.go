package takeover_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"mongodlm/takeover"
)

// anyDuration draws any duration. It prefers extreme values and the durations of the policy.
var anyDuration = rapid.OneOf(
	rapid.Just(time.Duration(0)),
	rapid.Map(rapid.Int64Range(-7200, 7200), func(n int64) time.Duration {
		return time.Duration(n) * time.Second
	}),
	rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) }),
	rapid.SampledFrom([]time.Duration{math.MinInt64, math.MaxInt64, limit, interval}),
)

// anyTime draws any BSON date, or the zero time.
var anyTime = rapid.OneOf(
	rapid.Just(time.Time{}),
	rapid.Map(rapid.Int64Range(-7200, 7200), func(n int64) time.Time {
		return noon.Add(time.Duration(n) * time.Second)
	}),
	rapid.Map(rapid.Int64(), func(ms int64) time.Time { return time.UnixMilli(ms).UTC() }),
	rapid.SampledFrom([]time.Time{
		time.UnixMilli(math.MinInt64), time.UnixMilli(math.MaxInt64), time.UnixMilli(0),
		time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	}),
)

var (
	anyText   = rapid.OneOf(rapid.Just(""), rapid.SampledFrom([]string{"a", "b", odd}), rapid.String())
	rareText  = rapid.OneOf(rapid.Just(""), rapid.Just(""), rapid.Just(""), rapid.String())
	odd       = "a\"b\n\x1b[31m\u200b\u202e\xff" + strings.Repeat("x", 5000)
	anyLength = rapid.Map(rapid.Int64Range(1, 7200), func(n int64) time.Duration {
		return time.Duration(n) * time.Second
	})
)

func anyEvidence(t *rapid.T) takeover.Evidence {
	return takeover.Evidence{
		Name:      anyText.Draw(t, "name"),
		Held:      rapid.IntRange(0, 9).Draw(t, "held") > 0,
		Malformed: rareText.Draw(t, "malformed"),
		Process:   anyText.Draw(t, "process"),
		TS:        [12]byte{rapid.ByteRange(0, 2).Draw(t, "ts")},
		Recorded:  anyDuration.Draw(t, "recorded"),

		HasPing:      rapid.IntRange(0, 4).Draw(t, "has ping") > 0,
		Ping:         anyTime.Draw(t, "ping"),
		Local:        anyTime.Draw(t, "local"),
		Seq:          rapid.Int64().Draw(t, "seq"),
		HasSeq:       rapid.IntRange(0, 4).Draw(t, "has seq") > 0,
		PingInterval: anyDuration.Draw(t, "ping interval"),
		PingTakeover: anyDuration.Draw(t, "ping takeover"),
		Condemned:    rareText.Draw(t, "condemned"),
		Sight:        anySight(t),

		Server:     anyTime.Draw(t, "server"),
		Primary:    anyText.Draw(t, "primary"),
		Wall:       anyTime.Draw(t, "wall"),
		Sent:       anyDuration.Draw(t, "sent"),
		Received:   anyDuration.Draw(t, "received"),
		LongestGap: anyDuration.Draw(t, "gap"),
	}
}

func anySight(t *rapid.T) takeover.Sight {
	return takeover.Sight{
		Seq: rapid.Int64().Draw(t, "seen seq"), Server: anyTime.Draw(t, "seen by the server's clock"),
		Local: anyTime.Draw(t, "seen by a clock"), By: anyText.Draw(t, "seen by"),
	}
}

func anyPolicy(t *rapid.T) takeover.Policy {
	p := takeover.Policy{
		Takeover:        anyLength.Draw(t, "takeover"),
		ForeignTakeover: anyLength.Draw(t, "foreign takeover"),
		PingInterval:    anyLength.Draw(t, "own interval"),
		MaxGap:          anyLength.Draw(t, "max gap"),
		Rule:            takeover.Rule(rapid.IntRange(0, 1).Draw(t, "mode")),
	}
	p.MaxClockSkew = time.Duration(rapid.Int64Range(0, int64(p.Takeover)-1).Draw(t, "skew"))
	return p
}

// secondLook draws a later read from the same primary. It finds the same documents as the given
// read.
func secondLook(t *rapid.T, first takeover.Evidence) takeover.Evidence {
	now := first
	now.Sent = first.Received + drawn(t, "elapsed", 0, 2*time.Hour)
	now.Received = now.Sent + drawn(t, "trip", 0, time.Minute)
	if !first.Server.IsZero() {
		now.Server = first.Server.Add(drawn(t, "server elapsed", 0, 2*time.Hour))
	}
	now.Wall = first.Wall.Add(drawn(t, "wall elapsed", -time.Hour, 2*time.Hour))
	return now
}

func drawn(t *rapid.T, label string, from, to time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(from), int64(to)).Draw(t, label))
}

// sane draws a read of a valid lock, with clock readings within a few hours of noon.
func sane(t *rapid.T) takeover.Evidence {
	e := look(drawn(t, "at", 0, 2*time.Hour))
	e.Received = e.Sent + drawn(t, "round trip", 0, time.Minute)
	e.Server = e.Server.Add(drawn(t, "server off", -time.Hour, time.Hour))
	e.Wall = e.Wall.Add(drawn(t, "wall off", -time.Hour, time.Hour))
	e.Local = e.Local.Add(drawn(t, "local off", -time.Hour, time.Hour))
	e.PingInterval = drawn(t, "ping interval", 0, time.Hour)
	e.Recorded = drawn(t, "recorded", 0, time.Hour)
	for _, f := range []edit{noPing, foreign, noSeq, noServer, noLocal, noWall, noPrimary} {
		if rapid.IntRange(0, 9).Draw(t, "leave out") == 0 {
			f(&e)
		}
	}
	return e
}

// Decide returns a well-formed decision for any evidence and policy. For the same input it returns
// the same decision.
func TestDecide_IsTotalAndDeterministic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first, now := anyEvidence(t), anyEvidence(t)
		switch rapid.IntRange(0, 2).Draw(t, "relation") {
		case 0:
			now = first
		case 1: // the same evidence, other readings
			other := now
			now = first
			now.Server, now.Wall, now.Primary = other.Server, other.Wall, other.Primary
			now.Sent, now.Received, now.LongestGap = other.Sent, other.Received, other.LongestGap
		}
		p := anyPolicy(t)
		if rapid.IntRange(0, 4).Draw(t, "odd policy") == 0 {
			p.Takeover, p.MaxGap = anyDuration.Draw(t, "any takeover"), anyDuration.Draw(t, "any gap")
			p.PingInterval = anyDuration.Draw(t, "any interval")
		}
		d := takeover.Decide(first, now, p)
		if again := takeover.Decide(first, now, p); again != d {
			t.Fatalf("two decisions:\n%+v\n%+v", d, again)
		}
		wellFormed(t, now, p, d)
	})
}

func wellFormed(t *rapid.T, now takeover.Evidence, p takeover.Policy, d takeover.Decision) {
	t.Helper()
	checkReason(t, d.Reason)
	waits := d.Verdict == takeover.Watch || d.Verdict == takeover.Skewed ||
		d.Verdict == takeover.Held
	taken := d.Verdict == takeover.Take
	switch {
	case d.Verdict < takeover.Free || d.Verdict > takeover.Malformed:
		t.Errorf("no verdict: %+v", d)
	case d.Remaining < 0 || !waits && d.Remaining != 0:
		t.Errorf("remaining: %+v", d)
	case waits && p.Validate() == nil && d.Remaining == 0:
		t.Errorf("waits for nothing: %+v", d)
	case taken != (d.Rule != "") || taken && d.Restart:
		t.Errorf("rule or restart: %+v", d)
	case now.Malformed != "" && d.Verdict != takeover.Malformed:
		t.Errorf("malformed document decided upon: %+v", d)
	case taken && d.Rule != "condemned" && p.Validate() != nil:
		t.Errorf("taken by a policy that is not valid: %+v", d)
	}
}

// A lock is taken when the takeover time has passed by the contender's clock and, if it is known,
// the server's clock. The lock is taken earlier only if the clocks of the server, the contender and
// the holder all show that the ping is older than the takeover time.
func TestDecide_NeverTakesBeforeTheTakeoverTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first := sane(t)
		now := secondLook(t, first)
		p := anyPolicy(t)
		d := takeover.Decide(first, now, p)

		need := max(p.Takeover, now.Recorded, now.PingTakeover)
		if !now.HasSeq && (now.HasPing || now.Recorded == 0) { // no ping here is condemned
			need = max(need, p.ForeignTakeover)
		}
		short := now.Sent-first.Received < need
		if !first.Server.IsZero() && now.Server.Sub(first.Server) < need {
			short = true
		}
		agree := now.HasSeq && !now.Server.IsZero() && !now.Wall.IsZero() && !now.Local.IsZero() &&
			now.Server.Sub(now.Ping) >= need && now.Wall.Sub(now.Ping) >= need &&
			now.Server.Sub(now.Local) >= need
		if short && !agree && d.Verdict == takeover.Take {
			t.Fatalf("taken too early: %+v", d)
		}
		if !short && d.Verdict != takeover.Take {
			t.Fatalf("not taken: %+v", d)
		}
	})
}

// If one clock is wrong, the witnesses rule takes no lock before the holder's ping is as old as the
// takeover time. The test also draws first reads of a holder whose silence an earlier contender has
// recorded.
func TestDecide_OneWrongClock_PingIsAsOldAsTheTakeoverTime(t *testing.T) { // A1, A3, A6, A7
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := policy()
		p.MaxClockSkew = drawn(t, "tolerated skew", 0, limit/2)
		age := limit - drawn(t, "too young by", 1, p.MaxClockSkew+1)
		if rapid.Bool().Draw(t, "young") {
			age = drawn(t, "age", 0, age)
		}
		trip := drawn(t, "trip", 0, min(age, 10*time.Second))
		wrong := func(what string) time.Duration {
			most := rapid.SampledFrom([]time.Duration{p.MaxClockSkew, limit, 1 << 62}).Draw(t, "at most")
			return drawn(t, what, -most, most)
		}
		var serverThen, serverNow, contender, holder time.Duration // lead of each clock
		switch rapid.IntRange(0, 2).Draw(t, "wrong clock") {
		case 0:
			serverThen, serverNow = wrong("server's at the ping"), wrong("server's now")
		case 1:
			contender = wrong("contender's")
		case 2:
			holder = wrong("holder's")
		}
		sent := time.Unix(1_800_000_000, 0).UTC() // true time of the ping
		e := look(0)
		e.Ping, e.Local = sent.Add(serverThen), sent.Add(holder)
		answered := age - drawn(t, "answered before the reply", 0, trip)
		e.Server = sent.Add(answered + serverNow)
		e.Wall = sent.Add(age + contender)
		e.Sent, e.Received = time.Hour, time.Hour+trip
		first := e
		first.Sent, first.Received = e.Sent-limit/2, e.Received-limit/2
		first.Server, first.Wall = e.Server.Add(-limit/2), e.Wall.Add(-limit/2)
		if rapid.Bool().Draw(t, "by a sight") {
			e.Sight = takeover.Sight{Seq: e.Seq, Server: sent.Add(-night), Local: sent.Add(-night), By: "x"}
			first = e
		}
		d := takeover.Decide(first, e, p)
		if d.Verdict == takeover.Take {
			t.Fatalf("taken at a true age of %v, T is %v: %s", age, limit, d.Reason)
		}
	})
}
