package takeover_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"mongodlm/takeover"
)

// world is a holder that pings at even intervals until it dies. Time counts from the first ping.
type world struct {
	interval time.Duration
	death    time.Duration
}

// look returns the evidence of a read that is sent at the given time. The last two arguments are
// the durations of the request and of the reply.
func (w world) look(sent, there, back time.Duration) takeover.Evidence {
	at := sent + there
	n := min(at, w.death) / w.interval
	e := look(sent, pinged(n*w.interval, int64(n)+1))
	e.Received = e.Sent + there + back
	e.Server, e.Wall = noon.Add(at), noon.Add(at+back)
	e.PingInterval = w.interval
	e.LongestGap = night // an Observation ignores it
	return e
}

// The lock of a holder that pings in time is never taken, for any error of the clocks and any times
// of the reads.
func TestObservation_LiveHolderIsNeverTaken(t *testing.T) { // A1 to A7, A13, A16
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := world{interval: drawn(t, "interval", time.Second, limit/3), death: 1 << 62}
		p := policy(mode(takeover.Rule(rapid.IntRange(0, 1).Draw(t, "mode"))))
		var o takeover.Observation
		var at, server, wall time.Duration
		for range rapid.IntRange(2, 30).Draw(t, "reads") {
			there, back := drawn(t, "there", 0, time.Second), drawn(t, "back", 0, time.Second)
			e := w.look(at, there, back)
			server += rapid.SampledFrom(steps).Draw(t, "server steps")
			wall += rapid.SampledFrom(steps).Draw(t, "wall steps")
			e.Server, e.Wall = e.Server.Add(server), e.Wall.Add(wall)
			var d takeover.Decision
			if o, d = o.Look(e, p); d.Verdict == takeover.Take {
				t.Fatalf("taken at %v: %+v", at, d)
			}
			at += there + back + drawn(t, "pause", 0, 2*maxGap)
		}
	})
}

var steps = []time.Duration{0, 0, 0, limit + skew, -limit, night, -night}

// The lock of a dead holder is taken at the earliest read that a rule permits. The watch rule waits
// for the takeover time. The witnesses rule waits for three intervals, and until the ping is old
// enough.
func TestObservation_DeadHolderIsTakenInTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := world{interval: drawn(t, "interval", time.Second, limit/3)}
		p := policy(mode(takeover.Rule(rapid.IntRange(0, 1).Draw(t, "mode"))))
		start := drawn(t, "first read", 0, 2*limit)
		earliest := start + trip + limit
		if p.Rule == takeover.Witnesses {
			earliest = min(earliest, max(limit+p.MaxClockSkew+trip/2, start+trip+3*w.interval))
		}
		every := drawn(t, "pause", maxGap/2, maxGap)
		var o takeover.Observation
		for at := start; ; at += trip + every {
			var d takeover.Decision
			o, d = o.Look(w.look(at, trip/2, trip/2), p)
			taken := d.Verdict == takeover.Take
			switch {
			case d.Restart:
				t.Fatalf("restarted at %v: %+v", at, d)
			case taken && at < earliest:
				t.Fatalf("taken at %v, not before %v: %+v", at, earliest, d)
			case !taken && at >= earliest:
				t.Fatalf("not taken at %v, due at %v: %+v", at, earliest, d)
			case taken:
				return
			}
		}
	})
}
