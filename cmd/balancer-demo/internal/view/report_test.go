package view_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"mongodlm/cmd/balancer-demo/internal/referee"
	"mongodlm/cmd/balancer-demo/internal/view"
)

func report() view.Report {
	return view.Report{
		Balanced: true,
		Duration: 41200 * time.Millisecond,
		Balancers: []view.Rounds{
			{Number: 1, Process: "host:4711:1460419200:77aa", Rounds: 30, Moves: 118,
				Waited: 24 * time.Second, LongestWait: 4400 * time.Millisecond, Place: 2},
			{Number: 2, Process: "host:4712:1460419200:5f0c", Rounds: 57, Moves: 230},
		},
		Handovers: 61, LongestLine: 2,
		Takeovers: []view.Takeover{{At: 9 * time.Second, From: "host:4711:1460419200:77aa",
			To: "host:4712:1460419200:5f0c", Fence: 40, Waited: 4100 * time.Millisecond,
			Evidence: "ping 3.1s old by server and by own clock, limit 3s, skew 2ms"}},
		Migrations: []view.Migrations{
			{Namespace: "shop.events", Chunks: 80}, {Namespace: "shop.orders", Chunks: 87}},
		Faults: []view.Fault{
			{At: 6 * time.Second, Kind: "kill", Target: "#1", Happened: true, Survived: true},
			{At: 15 * time.Second, Kind: "stop", Target: "#2", Happened: true, Survived: true}},
		Before: []view.Load{
			{Shard: "shard0", Chunks: 200, Collections: map[string]int{"shop.orders": 200}},
			{Shard: "shard4", Draining: true, Chunks: 9, Collections: map[string]int{"shop.events": 9}}},
		After: []view.Load{
			{Shard: "shard0", Chunks: 104, Collections: map[string]int{"shop.orders": 102,
				"shop.events": 2}},
			{Shard: "shard4", Draining: true}},
	}
}

func bad() view.Report {
	r := report()
	r.Balanced = false
	r.Faults[1].Survived = false
	r.Violations = []referee.Violation{{Breach: "stale-write", Subject: "shop.orders-_id_1\x1b[2J",
		Evidence: strings.Repeat("long ", 40)}}
	return r
}

func TestReport_Text_Golden(t *testing.T) {
	t.Parallel()
	golden(t, "report-ok.txt", report().Text())
	golden(t, "report-bad.txt", bad().Text())
	golden(t, "report-empty.txt", view.Report{}.Text())
	for line := range strings.Lines(bad().Text()) {
		if n := utf8.RuneCountInString(line) - 1; n > 100 {
			t.Errorf("line of %d columns: %q", n, line)
		}
	}
	wantHarmless(t, strings.ReplaceAll(bad().Text(), "\n", ""))
}

// A fault that the demo did not come to is neither survived nor not; a signal is no violation.
func TestReport_EndedEarly_SaysWhatDidNotHappen(t *testing.T) {
	t.Parallel()
	r := report()
	r.Faults[1] = view.Fault{Kind: "stop"}
	if !r.OK() {
		t.Error("a fault that did not happen spoils the report")
	}
	r.Interrupted, r.Faults[0].Survived = "interrupt", false
	golden(t, "report-interrupted.txt", r.Text())
	if text := r.Text(); strings.Contains(text, "NOT survived") || strings.Contains(text, "VIOLATION") {
		t.Errorf("an interrupted demo accuses the lock:\n%s", text)
	}
}

func TestReport_JSON_Golden(t *testing.T) {
	t.Parallel()
	reports := map[string]view.Report{"report-bad.json": bad(), "report-empty.json": {}}
	for name, r := range reports {
		text, err := r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, string(text))
		if !json.Valid(text) || strings.Contains(string(text), "null,") {
			t.Errorf("%s: no JSON, or a list is null: %s", name, text)
		}
	}
}

func TestReport_OK_OnlyWhenNothingWentWrong(t *testing.T) {
	t.Parallel()
	spoil := map[string]func(*view.Report){
		"not balanced":     func(r *view.Report) { r.Balanced = false },
		"a fault too much": func(r *view.Report) { r.Faults[0].Survived = false },
		"a violation":      func(r *view.Report) { r.Violations = bad().Violations },
	}
	if !report().OK() {
		t.Error("a clean report is not OK")
	}
	for name, change := range spoil {
		r := report()
		change(&r)
		if r.OK() {
			t.Errorf("%s: the report is OK", name)
		}
	}
}
