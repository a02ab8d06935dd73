package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The command "distlock ps" lists each process once, with all its locks and queue entries. The list
// includes processes without a lock and processes without a ping.
func TestPs_EveryProcess_IsListedOnce(t *testing.T) {
	b := newBase(t)
	b.cli("ps").want(t, exitFailed, "nothing was ever locked there")
	fill(b)
	fillShared(b)
	b.ping("idle:7:1:g", time.Minute, bson.E{Key: "seq", Value: int64(1)},
		bson.E{Key: "takeoverMS", Value: int64(60_000)}, bson.E{Key: "local",
			Value: bson.NewDateTimeFromTime(time.Now().Add(-time.Minute + 90*time.Second))})
	golden(t, "ps.golden", b.cli("ps").want(t, 0).out)
	got := decoded[processList](t, b.cli("ps", "--json").want(t, 0))
	rows := map[string]processRow{}
	for _, p := range got.Processes {
		rows[p.Process] = p
	}
	if len(rows) != 7 || len(got.Processes) != len(rows) {
		t.Errorf("%d rows of %d processes, want 7", len(got.Processes), len(rows))
	}
	alive, idle := rows["alive:1:1:a"], rows["idle:7:1:g"]
	if len(alive.Holds) != 3 || len(alive.Waits) != 1 {
		t.Errorf("holds %q and waits for %q", alive.Holds, alive.Waits)
	}
	if idle.AheadMS == nil || *idle.AheadMS < 80_000 || *idle.AheadMS > 100_000 ||
		duration(idle.TakeoverMS) != time.Minute || idle.EveryMS != nil || alive.TakeoverMS != nil {
		t.Errorf("the idle one is %+v", idle)
	}
	weights := []int{}
	for _, p := range got.Processes {
		weights = append(weights, -p.trouble())
	}
	if !slices.IsSorted(weights) || weights[0] == 0 || weights[len(weights)-1] != 0 {
		t.Errorf("the processes in trouble do not come first: %v", weights)
	}
}

// checkWidth checks that no line is wider than the terminal and that the text has no control
// characters.
func checkWidth(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := cells(strings.TrimSuffix(line, "\n")); n > width {
			t.Errorf("a line of %d columns in a terminal of %d: %s", n, width, line)
		}
	}
	if i := strings.IndexAny(text, "\x1b\u202e\u009b"); i >= 0 {
		t.Errorf("a terminal could obey %q", text[i:])
	}
}
