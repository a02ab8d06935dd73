package takeover_test

import (
	"strings"
	"testing"
	"time"

	"mongodlm/takeover"
)

// follow adds reads to an observation, one per step from start to end, until the verdict is Take.
func follow(
	o takeover.Observation, start, end, step time.Duration, edits ...edit,
) (takeover.Observation, takeover.Decision) {
	var d takeover.Decision
	for at := start; at <= end; at += step {
		o, d = o.Look(look(at, edits...), policy(mode(takeover.WatchOnly)))
		if d.Verdict == takeover.Take {
			break
		}
	}
	return o, d
}

// A pause longer than MaxGap between two reads restarts the watch.
func TestObservation_Look_PauseRestarts(t *testing.T) { // D5
	t.Parallel()
	var o takeover.Observation
	if _, ok := o.First(); ok {
		t.Fatal("an empty observation has a first read")
	}
	o, _ = follow(o, 0, 10*time.Minute, time.Minute)
	back := 10*time.Minute + trip + maxGap + 1
	o, d := follow(o, back, back, 1)
	first, _ := o.First()
	if !d.Restart || d.Remaining != limit || first.Received != origin+back+trip {
		t.Fatalf("after the pause: %+v, since %v", d, first.Received)
	}
	// The restarted watch does not count the pause.
	o, d = follow(o, back+time.Minute, back+limit, time.Minute)
	if d.Restart || d.Verdict != takeover.Watch {
		t.Fatalf("after the new beginning: %+v", d)
	}
	if _, d = follow(o, back+limit+trip, back+limit+trip, 1); d.Verdict != takeover.Take {
		t.Errorf("a takeover time after the pause: %+v", d)
	}
}

// The observation keeps the longest pause, so that a stricter policy also finds it.
func TestObservation_Look_KeepsTheLongestPause(t *testing.T) {
	t.Parallel()
	o, _ := follow(takeover.Observation{}, 0, time.Minute, time.Minute)
	o, _ = follow(o, 65*time.Second, 65*time.Second, 1)
	strict := policy(func(p *takeover.Policy) { p.MaxGap = 30 * time.Second })
	if _, d := o.Look(look(70*time.Second), strict); !d.Restart {
		t.Errorf("a pause of a minute, 30 s allowed: %+v", d)
	}
}

// A new primary, or a step back of the server's clock, restarts the watch. It does so even if
// earlier reads do not know the primary or the server's clock, and after an earlier restart.
func TestObservation_Look_RemembersPrimaryAndServer(t *testing.T) { // A4, A16
	t.Parallel()
	const term2, back = "term 2", -3 * time.Minute
	for name, reads := range map[string][][]edit{
		"primary, unknown in between":       {{}, {noPrimary}, {primary(term2)}},
		"primary, unknown at the beginning": {{noPrimary}, {}, {primary(term2)}},
		"primary, unknown twice":            {{noPrimary}, {}, {noPrimary}, {primary(term2)}},
		"primary, after a restart":          {{seq(6)}, {noPrimary}, {primary(term2)}},
		"server":                            {{}, {}, {}, {}, {serverOff(back)}},
		"server, unknown in between":        {{}, {}, {}, {noServer}, {serverOff(back)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o takeover.Observation
			var d takeover.Decision
			for i, edits := range reads {
				if d.Restart && !strings.Contains(d.Reason, "seq") {
					t.Errorf("restarted before the last read: %+v", d)
				}
				o, d = o.Look(look(time.Duration(i)*time.Minute, edits...), policy())
			}
			if !d.Restart {
				t.Errorf("not seen: %+v", d)
			}
		})
	}
}

func TestObservation_Look_FreeAndMalformedEndTheWatch(t *testing.T) {
	t.Parallel()
	for name, odd := range map[string]edit{"free": free, "malformed": broken} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := follow(takeover.Observation{}, 0, 14*time.Minute, time.Minute)
			o, _ = follow(o, 15*time.Minute, 15*time.Minute, 1, odd)
			if _, ok := o.First(); ok {
				t.Error("still watched")
			}
			if _, d := follow(o, 16*time.Minute, 16*time.Minute, 1); d.Remaining != limit {
				t.Errorf("the next read is no first read: %+v", d)
			}
		})
	}
}

// Each row of the table is a difference between two reads that restarts the watch.
func TestDecide_ChangeRestarts(t *testing.T) {
	t.Parallel()
	at := limit + trip
	session := func(e *takeover.Evidence) { e.TS = [12]byte{11: 2} }
	other := func(e *takeover.Evidence) { e.Process = "db2:1:1:x" }
	again := func(name string, v takeover.Verdict, now takeover.Evidence, says string) row {
		return later(name, v, limit, look(0), now).anew().saying(says)
	}
	check(t, []row{
		again("holder pinged", held, look(at, pinged(at, 8)),
			"is alive: seq went from 7 to 8"),
		again("holder pinged long ago", held, look(night, pinged(time.Minute, 8)),
			"is alive"),
		again("seq rises under a frozen clock", held, look(at, seq(8)), "seq went"), // A5, A17
		again("seq falls", watched, look(at, seq(6)), "seq went from 7 to 6"),       // F17
		again("seq disappears", watched, look(at, foreign), "another form"),
		again("ping rises without seq", held, look(at, ping(at)), "pinged"),
		again("ping rises a little without seq", watched, look(at, ping(1)), "ping went"),
		again("ping falls", watched, look(at, ping(-time.Second)), "ping went"),
		again("local rises", watched, look(at, local(time.Second)), "local went"),
		again("local disappears", watched, look(at, noLocal), "local went"),
		again("another holder", watched, look(at, other), "the holder was"),
		again("another holder, alive", held, look(at, other, pinged(at, 8)),
			"the holder was"),
		again("another session", watched, look(at, session), "another session"),
		again("another primary", watched, look(at, primary("term 2")),
			`primary "term 2" instead of "term 1"`), // A16
		again("another primary, holder alive", held,
			look(at, primary("term 2"), pinged(at, 8)), "alive"),
		again("server's clock went back", watched, look(at, serverOff(-20*time.Minute)), // A4
			"server's clock went back from 2011-06-01T12:00:00.010Z to 2011-06-01T11:55:00.030Z"),
		again("no read for too long", watched, look(2*limit, gap(maxGap+1)),
			"no read for 1m30s"), // D5
		later("first read showed a free lock", watched, limit, look(0, free), look(at)).anew().
			saying("showed no holder"),
		later("first read found a malformed lock", watched, limit, look(0, broken), look(at)).anew().
			saying("showed no holder"),
		later("first read is missing", watched, limit, takeover.Evidence{}, look(at)).anew().
			saying("showed no holder"),
		later("foreign holder pinged", held, limit, look(0, foreign), look(at, foreign, ping(1))).anew().
			saying("is alive: ping went"),
		later("foreign holder, another lock", watched, limit, look(0, foreign),
			look(at, foreign, named("shard"))).anew().saying(`the read before was of lock "balancer"`),
	})
}

// The watch does not restart for an unknown primary, an allowed pause, another time zone, or
// another lock of the same process.
func TestDecide_NoChange(t *testing.T) {
	t.Parallel()
	at := limit + trip
	session := func(e *takeover.Evidence) { e.TS = [12]byte{11: 2} }
	goesOn := func(name string, first, now takeover.Evidence) row {
		return takes(name, "watch", first, now)
	}
	zoned := func(e *takeover.Evidence) {
		e.Ping = e.Ping.In(time.FixedZone("east", 3600))
		e.Local = e.Local.In(time.FixedZone("west", -3600))
	}
	check(t, []row{
		goesOn("another lock of the same process", look(0), look(at, named("shard"), session)),
		goesOn("primary unknown at the first read", look(0, noPrimary), look(at)),
		goesOn("primary unknown at the last read", look(0), look(at, noPrimary)),
		goesOn("primary never known", look(0, noPrimary), look(at, noPrimary)),
		goesOn("pause as long as allowed", look(0), look(at, gap(maxGap))),
		goesOn("the same times in another zone", look(0), look(at, zoned)), // A14
		goesOn("contender's wall clock stepped", look(0), look(at, wallOff(-night))),
		goesOn("timing of the holder rewritten", look(0), look(at, func(e *takeover.Evidence) {
			e.Recorded, e.PingTakeover, e.PingInterval = 0, 0, 0
		})),
	})
}
