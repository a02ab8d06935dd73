package main

import (
	"strings"
	"testing"
	"time"

	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/cmd/balancer-demo/internal/referee"
)

func clean() report {
	const evidence = `ping of "host:4711:1460419200:77aa" unchanged for 4s`
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
		took: 41200 * time.Millisecond,
		told: ledger{
			members: []*member{
				{2, "host:4712:1460419200:5f0c", 57, 0, 0},
				{1, "host:4711:1460419200:77aa", 30, 24 * time.Second, 4400 * time.Millisecond},
			},
			takeovers: []balancer.Event{{Process: "host:4712:1460419200:5f0c", Fence: 40,
				Waited: 4100 * time.Millisecond, Text: evidence}},
			refused: 1,
		},
		faults: []fault{
			{kind: "kill", process: "host:4711:1460419200:77aa", at: 6 * time.Second,
				survived: true},
			{kind: "stop", process: "host:4712:1460419200:5f0c", at: 15 * time.Second,
				survived: true},
		},
		before:  chunks("shard0", "shard4", "shard4"),
		after:   chunks("shard0", "shard0", "shard0"),
		changes: make([]cluster.Change, 2),
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

          rounds   moves  waits for the lock: mean, longest
  #1          30       0      800ms       4.4s  host:4711:1460419200:77aa
  #2          57       0         0s         0s  host:4712:1460419200:5f0c
  all         87       2      276ms       4.4s  

takeovers 1
  fence 40, after a wait of 4.1s, by host:4712:1460419200:5f0c
    ping of "host:4711:1460419200:77aa" unchanged for 4s

chunks on                   before   after
  shard0                         1       3
  shard4 draining                2       0

faults survived 2 of 2, writes of a stale holder refused 1

violations none: no overlapping rounds, no write of a stale holder, no chunk lost
`
	if got := clean().text(); got != want {
		t.Errorf("want:\n%s\ngot:\n%s", want, got)
	}
	wantParts(t, bad().text(), "the cluster is NOT balanced", "faults survived 1 of 2",
		"NOT survived: stop of host:4712:1460419200:5f0c at 15s", "VIOLATIONS 1\n",
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

// The report of an interrupted demo does not count a missing or unfinished fault as a violation.
func TestReport_EndedEarly_SaysWhatDidNotHappen(t *testing.T) {
	t.Parallel()
	r := clean()
	r.interrupted, r.faults[0].survived, r.faults[1] = "interrupt", false, fault{kind: "stop"}
	text := r.text()
	wantParts(t, text, "ended early (interrupt)", "faults survived 0 of 1", "not injected: stop",
		"outcome unknown: kill of host:4711:1460419200:77aa at 6s")
	if strings.Contains(text, "NOT survived") || strings.Contains(text, "VIOLATION") {
		t.Errorf("the report of an interrupted demo has a violation:\n%s", text)
	}
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

// The ledger adds up the waits for the lock by process id. A restarted balancer therefore counts as
// a new process. The ledger counts a refused stale write. It reports a breach if a stale write
// succeeded.
func TestLedger_SumsUpTheEvents(t *testing.T) {
	t.Parallel()
	var l ledger
	for _, e := range []balancer.Event{
		{Kind: balancer.Entered, Number: 1, Process: "host:1:1:a", Waited: time.Second},
		{Kind: balancer.Started, Number: 2, Process: "host:2:1:b"},
		{Kind: balancer.Entered, Number: 1, Process: "host:1:1:a", Waited: 3 * time.Second},
		{Kind: balancer.Entered, Number: 1, Process: "host:3:1:c", Waited: time.Minute},
		{Kind: balancer.Refused, Number: 1, Process: "host:1:1:a", Fence: 7},
		{Kind: balancer.Breach, Number: 1, Process: "host:1:1:a", Fence: 7, Chunk: "c1"},
	} {
		l.note(e)
	}
	want := member{number: 1, process: "host:1:1:a", rounds: 2, waited: 4 * time.Second,
		longest: 3 * time.Second}
	if len(l.members) != 2 || *l.members[0] != want || l.rounds != 3 {
		t.Errorf("%d members, %d rounds, want 2 and 3; want\n%+v\ngot\n%+v", len(l.members), l.rounds,
			want, l.members[0])
	}
	if l.refused != 1 || len(l.breaches) != 1 || l.breaches[0].Subject != "c1" {
		t.Errorf("%d refused, breaches %+v", l.refused, l.breaches)
	}
}
