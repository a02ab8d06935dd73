package main

import (
	"testing"
	"time"

	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/balancer-demo/internal/view"
)

// What the ledger knows of waiting comes from two sides: the balancers tell how long, the lock
// document shows in which place.
func TestLedger_Waits_AreAddedUp(t *testing.T) {
	t.Parallel()
	l := newLedger()
	const first, second = "host:1:1:a", "host:2:1:b"
	l.note(0, balancer.Event{Kind: balancer.Entered, Number: 1, Process: first, Waited: time.Second})
	l.note(0, balancer.Event{Kind: balancer.Started, Number: 2, Process: second})
	l.note(0, balancer.Event{Kind: balancer.Entered, Number: 1, Process: first, Waited: 3 * time.Second})
	l.stood([]view.Waiter{{Process: "stranger"}, {Number: 1, Process: first}})
	l.stood([]view.Waiter{{Number: 1, Process: first}})
	want := view.Rounds{Number: 1, Process: first, Rounds: 2, Waited: 4 * time.Second,
		LongestWait: 3 * time.Second, Place: 2}
	if got := l.processes[first].Rounds; got != want || l.longest != 2 {
		t.Errorf("longest line %d, want 2; want\n%+v\ngot\n%+v", l.longest, want, got)
	}
}

// The dead one of a takeover is the process of which the evidence speaks, whoever had the last round.
func TestLedger_Takeover_NamesTheDead(t *testing.T) {
	t.Parallel()
	const dead, last, heir = "host:1:1:a", "host:2:1:b", "host:3:1:c"
	for name, c := range map[string]struct{ evidence, from string }{
		"of a process that is known": {`ping of "host:1:1:a" unchanged for 4s`, dead},
		"of a stranger":              {`ping of "host:1:1:abc" unchanged for 4s`, last},
	} {
		l := newLedger()
		for n, process := range []string{dead, last, heir} {
			l.note(0, balancer.Event{Kind: balancer.Started, Number: n + 1, Process: process})
		}
		l.note(0, balancer.Event{Kind: balancer.Entered, Number: 2, Process: last})
		l.note(time.Second, balancer.Event{Kind: balancer.TookOver, Number: 3, Process: heir, Fence: 9,
			Text: c.evidence, Waited: 4 * time.Second})
		want := view.Takeover{At: time.Second, From: c.from, To: heir, Fence: 9,
			Waited: 4 * time.Second, Evidence: c.evidence}
		if len(l.takeovers) != 1 || l.takeovers[0] != want {
			t.Errorf("%s: want %+v, got %+v", name, want, l.takeovers)
		}
	}
}

// A balancer that was started again is not the process that died: what the dead one holds it does not.
func TestLedger_Restarted_IsAnotherProcess(t *testing.T) {
	t.Parallel()
	const dead, heir = "host:11:1:a", "host:22:9:b"
	l := newLedger()
	l.restarted(1, 11)
	l.note(0, balancer.Event{Kind: balancer.Started, Number: 1, PID: 11, Process: dead})
	if !l.now(dead) {
		t.Error("the living process does not count as its number's")
	}
	l.restarted(1, 22)
	l.note(0, balancer.Event{Kind: balancer.MovedOne, Number: 1, PID: 11, Process: dead}) // told late
	l.note(0, balancer.Event{Kind: balancer.Started, Number: 1, PID: 22, Process: heir})
	if l.now(dead) || !l.now(heir) || l.now("host:33:1:stranger") {
		t.Errorf("now: dead %v, heir %v", l.now(dead), l.now(heir))
	}
}
