package takeover_test

import (
	"testing"
	"time"

	"mongodlm/takeover"
)

// watch shows an observation one look every step from start to end, and returns the last answer.
func watch(
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

func TestObservation_Look_TakesAfterTheTakeoverTime(t *testing.T) {
	t.Parallel()
	var o takeover.Observation
	if _, ok := o.First(); ok || o.Since() != 0 {
		t.Fatal("an observation that has seen nothing says it has")
	}
	o, d := watch(o, 0, limit, time.Minute)
	if d.Verdict != takeover.Watch || d.Remaining != trip || d.Restart {
		t.Fatalf("20 ms short: %+v", d)
	}
	if first, ok := o.First(); !ok || first != look(0) || o.Since() != origin+trip {
		t.Errorf("first look: %+v since %v", first, o.Since())
	}
	if _, d = watch(o, limit+trip, limit+trip, 1); d.Verdict != takeover.Take || d.Rule != "watch" {
		t.Errorf("at the takeover time: %+v", d)
	}
}

// D5
func TestObservation_Look_PauseRestarts(t *testing.T) {
	t.Parallel()
	o, _ := watch(takeover.Observation{}, 0, 10*time.Minute, time.Minute)
	back := 10*time.Minute + trip + maxGap + 1
	o, d := watch(o, back, back, 1)
	if !d.Restart || d.Remaining != limit || o.Since() != origin+back+trip {
		t.Fatalf("after the pause: %+v, since %v", d, o.Since())
	}
	// The pause is forgotten with the watch that it ended.
	o, d = watch(o, back+time.Minute, back+limit, time.Minute)
	if d.Restart || d.Verdict != takeover.Watch {
		t.Fatalf("after the new beginning: %+v", d)
	}
	if _, d = watch(o, back+limit+trip, back+limit+trip, 1); d.Verdict != takeover.Take {
		t.Errorf("a takeover time after the pause: %+v", d)
	}
}

func TestObservation_Look_PauseOfTheAllowedLength(t *testing.T) {
	t.Parallel()
	_, d := watch(takeover.Observation{}, 0, limit+maxGap+trip, maxGap+trip)
	if d.Verdict != takeover.Take {
		t.Errorf("looking every %v: %+v", maxGap+trip, d)
	}
}

// A pause stays in the watch: a stricter policy later on finds it.
func TestObservation_Look_KeepsTheLongestPause(t *testing.T) {
	t.Parallel()
	o, _ := watch(takeover.Observation{}, 0, time.Minute, time.Minute)
	o, _ = watch(o, 65*time.Second, 65*time.Second, 1)
	strict := policy(func(p *takeover.Policy) { p.MaxGap = 30 * time.Second })
	if _, d := o.Look(look(70*time.Second), strict); !d.Restart {
		t.Errorf("a pause of a minute, 30 s allowed: %+v", d)
	}
}

func TestObservation_Look_IgnoresTheCallersGap(t *testing.T) {
	t.Parallel()
	o, d := watch(takeover.Observation{}, 0, 0, 1, gap(night))
	if d.Restart {
		t.Errorf("first look: %+v", d)
	}
	_, d = watch(o, time.Minute, limit+time.Minute, time.Minute, gap(night))
	if d.Verdict != takeover.Take {
		t.Errorf("a gap that the caller left in the evidence: %+v", d)
	}
}

// A16: terms 1, unknown, 2. No two neighbours differ, and yet there was an election.
func TestObservation_Look_RemembersThePrimary(t *testing.T) {
	t.Parallel()
	for name, terms := range map[string][]string{
		"unknown in between":       {"1", "", "2"},
		"unknown at the beginning": {"", "1", "2"},
		"unknown twice":            {"", "1", "", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o takeover.Observation
			var d takeover.Decision
			for i, term := range terms {
				if d.Restart {
					t.Errorf("restarted before the last look: %+v", d)
				}
				at := time.Duration(i) * time.Minute
				o, d = o.Look(look(at, primary(term)), policy())
			}
			if !d.Restart {
				t.Errorf("election not seen: %+v", d)
			}
		})
	}
}

// A blind look that restarts the watch does not make it forget the term either.
func TestObservation_Look_RemembersThePrimaryOverARestart(t *testing.T) {
	t.Parallel()
	o, _ := takeover.Observation{}.Look(look(0), policy())
	o, d := o.Look(look(time.Minute, seq(8), noPrimary), policy())
	if !d.Restart {
		t.Fatalf("holder pinged: %+v", d)
	}
	if _, d = o.Look(look(2*time.Minute, seq(8), primary("term 2")), policy()); !d.Restart {
		t.Errorf("election not seen: %+v", d)
	}
}

// A4: the server's clock falls between two looks but stays above the first one.
func TestObservation_Look_ServerBackAgainstTheLookBefore(t *testing.T) {
	t.Parallel()
	for name, between := range map[string][]edit{
		"seen by the next look":        nil,
		"with a blind look in between": {noServer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := watch(takeover.Observation{}, 0, 5*time.Minute, time.Minute)
			if between != nil {
				o, _ = watch(o, 6*time.Minute, 6*time.Minute, 1, between...)
			}
			_, d := watch(o, 7*time.Minute, 7*time.Minute, 1, serverOff(-3*time.Minute))
			if !d.Restart {
				t.Errorf("server's clock went back: %+v", d)
			}
		})
	}
}

func TestObservation_Look_FreeAndMalformedEndTheWatch(t *testing.T) {
	t.Parallel()
	for name, odd := range map[string]edit{"free": free, "malformed": broken} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := watch(takeover.Observation{}, 0, 14*time.Minute, time.Minute)
			o, _ = watch(o, 15*time.Minute, 15*time.Minute, 1, odd)
			if _, ok := o.First(); ok {
				t.Error("still watched")
			}
			if _, d := watch(o, 16*time.Minute, 16*time.Minute, 1); d.Remaining != limit {
				t.Errorf("the next look is no first look: %+v", d)
			}
		})
	}
}

// A value: looking with one copy leaves the other where it was.
func TestObservation_Look_LeavesTheOldOneAlone(t *testing.T) {
	t.Parallel()
	o, _ := watch(takeover.Observation{}, 0, time.Minute, time.Minute)
	before := o
	o.Look(look(2*time.Minute, seq(8)), policy())
	if o != before {
		t.Error("Look changed the observation it was called on")
	}
}

// Two locks of one process share a watch; the second one needs no watching of its own.
func TestObservation_Look_ServesAllLocksOfAProcess(t *testing.T) {
	t.Parallel()
	o, _ := watch(takeover.Observation{}, 0, limit, time.Minute)
	shard := func(e *takeover.Evidence) { e.Name, e.TS = "shard", [12]byte{0: 9} }
	if _, d := watch(o, limit+trip, limit+trip, 1, shard); d.Verdict != takeover.Take {
		t.Errorf("another lock of the same process: %+v", d)
	}
}
