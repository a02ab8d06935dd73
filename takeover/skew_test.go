package takeover_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"mongodlm/takeover"
)

// If one clock is wrong, the witnesses rule takes no lock before the holder's ping is as old as the
// takeover time. This applies after a watch, and at the first read if there is an old Sight. A
// Sight is the record of an earlier contender that found the holder silent.
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
