package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/cmd/balancer-demo/internal/referee"
)

func clean() report {
	chunks := func(shards ...string) (c cluster.Cluster) {
		c = cluster.Cluster{
			Shards:      []cluster.Shard{{ID: "shard0"}, {ID: "shard4", Draining: true}},
			Collections: []cluster.Collection{{NS: "db.x"}},
		}
		for _, s := range shards {
			c.Chunks = append(c.Chunks, cluster.Chunk{NS: "db.x", Shard: s})
		}
		return c
	}
	return report{
		took:      41200 * time.Millisecond,
		takeovers: 1,
		faults: []fault{
			{kind: "kill", process: "host:4711:1460419200:77aa", survived: true},
			{kind: "stop", process: "host:4712:1460419200:5f0c", survived: true},
		},
		before: chunks("shard0", "shard4", "shard4"),
		after:  chunks("shard0", "shard0", "shard0"),
		rounds: []cluster.Round{
			{Number: 2, Moves: make([]cluster.Move, 1)}, {Number: 1},
			{Number: 1, Moves: make([]cluster.Move, 1)},
		},
	}
}

func bad() report {
	r := clean()
	r.after = r.before
	r.faults[1].survived = false
	r.violations = []referee.Violation{{Breach: "stale-write", Subject: "c\x1b[2J",
		Evidence: "both\nsides"}}
	return r
}

func TestReport_Text_TellsAllOfIt(t *testing.T) {
	t.Parallel()
	const want = `the cluster is balanced after 41.2s

          rounds   moves
  #1           2       1
  #2           1       1
  all          3       2

takeovers 1

chunks on                   before   after
  shard0                         1       3
  shard4 draining                2       0

faults survived 2 of 2

violations none: no overlapping rounds, no write of a stale holder, no chunk lost
`
	if got := clean().text(); got != want {
		t.Errorf("want:\n%s\ngot:\n%s", want, got)
	}
	wantParts(t, bad().text(), "the cluster is NOT balanced", "faults survived 1 of 2",
		"NOT survived: stop of host:4712:1460419200:5f0c", "VIOLATIONS 1\n",
		`stale-write: c\u001b[2J`, `both\u000asides`)
}

func wantParts(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}

// The report of a demo that ended early names the reason and the missing fault.
func TestReport_EndedEarly_SaysWhatDidNotHappen(t *testing.T) {
	t.Parallel()
	r := clean()
	r.ended, r.faults[1] = errors.New("interrupt"), fault{kind: "stop"}
	wantParts(t, r.text(), "ended early (interrupt)", "faults survived 1 of 2", "not injected: stop")
	r.faults[0].survived = false
	wantParts(t, r.text(), "faults survived 0 of 2", "outcome unknown: "+r.faults[0].kind)
}

func TestReport_OK_OnlyWhenNothingWentWrong(t *testing.T) {
	t.Parallel()
	if !clean().ok() {
		t.Error("a clean report is not ok")
	}
	for name, change := range map[string]func(*report){
		"not balanced":           func(r *report) { r.after = r.before },
		"a fault not survived":   func(r *report) { r.faults[0].survived = false },
		"a fault that never was": func(r *report) { r.faults[1] = fault{kind: "stop"} },
		"ended early":            func(r *report) { r.ended = errors.New("interrupt") },
		"a violation":            func(r *report) { r.violations = bad().violations },
	} {
		r := clean()
		change(&r)
		if r.ok() {
			t.Errorf("%s: the report is ok", name)
		}
	}
}

// A log line has no control characters, even if a foreign string contains them.
func TestLine_ForeignText_IsEscaped(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"1.5s demo kill: SIGKILL": line(1500*time.Millisecond, 0, "kill", "SIGKILL"),
		`83.0s #2 error: to \u001b[2J\u000anext\u202e`: line(83*time.Second, 2, "error",
			"to \x1b[2J\nnext\u202e"),
	} {
		if got != want {
			t.Errorf("want %s\n got %s", want, got)
		}
	}
}
