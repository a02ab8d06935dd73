package takeover_test

import (
	"testing"
	"time"

	"mongodlm/internal/test/assert"
	"mongodlm/takeover"
)

// Any difference between two looks begins the watch anew, in either direction, however long it
// has lasted.
func TestDecide_ChangeRestarts(t *testing.T) {
	t.Parallel()
	at := limit + trip
	session := func(e *takeover.Evidence) { e.TS = [12]byte{11: 2} }
	other := func(e *takeover.Evidence) { e.Process = "db2:1:1:x" }
	again := func(name string, verdict takeover.Verdict, now takeover.Evidence, says string) row {
		return row{
			name: name, first: look(0), now: now, verdict: verdict, remaining: limit,
			restart: true, says: says,
		}
	}
	check(t, []row{
		again("holder pinged", takeover.Held, look(at, pinged(at, 8)),
			"is alive: seq went from 7 to 8"),
		again("holder pinged long ago", takeover.Held, look(night, pinged(time.Minute, 8)),
			"is alive"),
		// A5
		again("seq rises under a frozen clock", takeover.Held, look(at, seq(8)), "seq went"),
		// A17
		again("seq rises within one millisecond", takeover.Held, look(at, seq(9)), "7 to 9"),
		// F17
		again("seq falls", takeover.Watch, look(at, seq(6)), "seq went from 7 to 6"),
		again("seq jumps", takeover.Held, look(at, seq(1007)), "seq went from 7 to 1007"),
		again("seq disappears", takeover.Watch, look(at, foreign), "another form"),
		again("ping rises without seq", takeover.Held, look(at, ping(at)), "pinged"),
		again("ping rises a little without seq", takeover.Watch, look(at, ping(1)), "ping went"),
		again("ping falls", takeover.Watch, look(at, ping(-time.Second)), "ping went"),
		again("local rises", takeover.Watch, look(at, local(time.Second)), "local went"),
		again("local falls", takeover.Watch, look(at, local(-time.Second)), "local went"),
		again("local disappears", takeover.Watch, look(at, noLocal), "local went"),
		again("another holder", takeover.Watch, look(at, other), "the holder was"),
		again("another holder, alive", takeover.Held, look(at, other, pinged(at, 8)),
			"the holder was"),
		again("another session", takeover.Watch, look(at, session), "another session"),
		// A16
		again("another primary", takeover.Watch, look(at, primary("term 2")),
			`primary "term 2" instead of "term 1"`),
		// A16
		again("another primary, ten minutes ahead", takeover.Watch,
			look(at, primary("term 2"), serverOff(10*time.Minute)), "primary"),
		again("another primary, holder alive", takeover.Held,
			look(at, primary("term 2"), pinged(at, 8)), "alive"),
		// A4
		again("server's clock went back", takeover.Watch, look(at, serverOff(-20*time.Minute)),
			"server's clock went back from 2011-06-01T12:00:00.010Z to 2011-06-01T11:55:00.030Z"),
		// D5
		again("nobody looked for too long", takeover.Watch, look(2*limit, gap(maxGap+1)),
			"nobody looked for 1m30s"),
		{
			name: "first look showed a free lock", first: look(0, free), now: look(at),
			verdict: takeover.Watch, remaining: limit, restart: true, says: "showed no holder",
		},
		{
			name: "first look could not be read", first: look(0, broken), now: look(at),
			verdict: takeover.Watch, remaining: limit, restart: true, says: "showed no holder",
		},
		{
			name: "first look is missing", first: takeover.Evidence{}, now: look(at),
			verdict: takeover.Watch, remaining: limit, restart: true, says: "showed no holder",
		},
		{
			name: "foreign holder pinged", first: look(0, foreign), now: look(at, foreign, ping(1)),
			verdict: takeover.Held, remaining: limit, restart: true, says: "is alive: ping went",
		},
		{
			name: "foreign holder, another lock", first: look(0, foreign),
			now: look(at, foreign, named("shard")), verdict: takeover.Watch, remaining: limit,
			restart: true, says: `the look before was at lock "balancer"`,
		},
		{
			name: "at once does not survive a change", first: look(night),
			now: look(night+time.Minute, primary("term 2")), verdict: takeover.Watch,
			policy: policy(mode(takeover.TakeAtOnce)), remaining: limit, restart: true,
		},
	})
}

// What is no difference: the watch goes on and gets there.
func TestDecide_NoChange(t *testing.T) {
	t.Parallel()
	at := limit + trip
	session := func(e *takeover.Evidence) { e.TS = [12]byte{11: 2} }
	goesOn := func(name string, first, now takeover.Evidence) row {
		return row{name: name, first: first, now: now, verdict: takeover.Take, rule: "watch"}
	}
	zoned := func(e *takeover.Evidence) {
		e.Ping = e.Ping.In(time.FixedZone("east", 3600))
		e.Local = e.Local.In(time.FixedZone("west", -3600))
	}
	check(t, []row{
		goesOn("another lock of the same process", look(0), look(at, named("shard"), session)),
		goesOn("primary unknown at the first look", look(0, noPrimary), look(at)),
		goesOn("primary unknown at the last look", look(0), look(at, noPrimary)),
		goesOn("primary never known", look(0, noPrimary), look(at, noPrimary)),
		goesOn("pause as long as allowed", look(0), look(at, gap(maxGap))),
		// A14
		goesOn("the same times in another zone", look(0), look(at, zoned)),
		goesOn("contender's wall clock stepped", look(0), look(at, wallOff(-night))),
		goesOn("timing of the holder rewritten", look(0), look(at, func(e *takeover.Evidence) {
			e.Recorded, e.PingTakeover, e.PingInterval = 0, 0, 0
		})),
	})
}

func TestEvidence_Subject(t *testing.T) {
	t.Parallel()
	nameless := func(e *takeover.Evidence) { e.Process = "" }
	for name, c := range map[string]struct {
		e    takeover.Evidence
		want takeover.Subject
	}{
		"holder with seq": {look(0), takeover.Subject{Process: process}},
		"foreign holder": {look(0, foreign),
			takeover.Subject{Process: process, Lock: "balancer"}},
		"holder without a ping":  {look(0, noPing), takeover.Subject{Process: process, Lock: "balancer"}},
		"holder without process": {look(0, nameless), takeover.Subject{Lock: "balancer"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, c.e.Subject(), c.want, "want %[2]+v, got %[1]+v")
		})
	}
}
