package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock/history"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

// happened writes entries into the history. The first entry is at the time day, and each entry is a
// minute after the previous one.
func (b *base) happened(day time.Time, entries ...history.Entry) {
	b.t.Helper()
	for n, e := range entries {
		e.ID, e.At = bson.NewObjectID(), day.Add(time.Duration(n)*time.Minute)
		b.insert(history.Collection, e)
	}
}

func sampleEvents() []history.Entry {
	old, young := "alive:1:1:a", "host-b:27:1700000001:6fa459ea"
	of := func(kind, name, process string, fence int64) history.Entry {
		return history.Entry{Kind: kind, Process: process, Fence: fence, Name: name,
			Session: bson.ObjectID{11: byte(fence)}, Mode: "exclusive", Why: "nightly"}
	}
	with := func(e history.Entry, change func(*history.Entry)) history.Entry {
		change(&e)
		return e
	}
	return []history.Entry{
		of("acquired", "reports", old, 41),
		with(of("lost", "reports", old, 41), func(e *history.Entry) {
			e.Cause, e.HeldMS = "no ping was acknowledged in time", (11 * time.Minute).Milliseconds()
		}),
		with(of("taken over", "reports", young, 42), func(e *history.Entry) {
			e.Previous, e.Rule, e.Evidence = old, "watch", "rule watch: its ping stood still for 15m0s"
			e.WaitedMS = (12 * time.Minute).Milliseconds()
		}),
		with(of("released", "reports", young, 42),
			func(e *history.Entry) { e.HeldMS = 75_000 }),
		with(of("evicted", "reports", young, 0),
			func(e *history.Entry) { e.Previous = "dead:9:1:x" }),
		with(of("broken", "x y ", "alice@desk:71", 43),
			func(e *history.Entry) { e.Previous, e.Why = old, foreign }),
		with(of("acquired", "chief", old, 44), func(e *history.Entry) { e.Label = "election" }),
	}
}

// The command "distlock history" shows each kind of entry as text, newest first. Its JSON output
// contains all stored data.
func TestHistory_Shown(t *testing.T) {
	b := newBase(t)
	fill(b)
	b.happened(time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC), sampleEvents()...)
	golden(t, "history.golden", b.cli("history").want(t, 0).out)
	got := decoded[eventList](t, b.cli("history", "reports", "--json").want(t, 0))
	var events []string
	for _, e := range got.Events {
		events = append(events, e.Event)
	}
	if want := []string{"evicted", "released", "taken over", "lost", "acquired"}; !slices.Equal(events,
		want) || got.Limited {
		t.Errorf("events %q, want %q", events, want)
	}
	if e := got.Events[2]; e.Previous != "alive:1:1:a" || e.Rule != "watch" || e.WaitedMS != 720_000 ||
		e.Fence != 42 {
		t.Errorf("taken over: %+v", e)
	}
	b.cli("history", "--limit", "3").want(t, 0, "the newest 3; --limit shows more",
		"acquired (leader)", "broken")
}

// The command "distlock history --since" counts back from the server's time. If no entry matches,
// "distlock history" names the likely reason.
func TestHistory_SinceAndNothing(t *testing.T) {
	b := newBase(t)
	b.cli("history").want(t, exitFailed, "nothing was ever locked there")
	fill(b)
	b.cli("history").want(t, 0, "no history in database")
	now := clock.System().Now().Wall
	b.happened(now.Add(-3*time.Hour), history.Entry{Kind: "lost", Name: "early"})
	b.happened(now.Add(-time.Hour), history.Entry{Kind: "lost", Name: "late"})
	out := b.cli("history", "--since", "2h").want(t, 0, "late").out
	if strings.Contains(out, "early") {
		t.Error(out)
	}
	for _, long := range []string{"1d", "1d12h", "7d"} {
		b.cli("history", "--since", long).want(t, 0, "late", "early")
	}
	b.cli("history", "--since", "1x").want(t, exitUsage, "--since must be a time with its unit")
	b.cli("history", "--since", "5m", "late").want(t, 0, `no history of lock "late" in the last 5m0s`)
	for _, wrong := range [][]string{{"--since", "-1h"}, {"--since", "0s"}, {"--limit", "-1"},
		{"a", "b"}, {""}} {
		b.cli(append([]string{"history"}, wrong...)...).want(t, exitUsage)
	}
}

// The command "distlock history" reports malformed entries below the table. Control characters in
// stored strings never reach the terminal, and no line is too wide.
func TestHistory_Foreign_NarrowTerminal(t *testing.T) {
	b := newBase(t)
	fill(b)
	night := sampleEvents()
	for i := range night {
		night[i].Kind, night[i].Cause, night[i].Evidence = night[i].Kind+
			foreign, foreign, strings.Repeat(foreign, 40)
		night[i].Name, night[i].Process = foreign, foreign
	}
	b.happened(time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC), night...)
	b.insert(history.Collection, bsontest.D("_id", foreign, "kind", "lost"))
	out := b.cli("history").want(t, 0, "remedy: remove the document").out
	whole, _, _ := strings.Cut(out, "\nmalformed") // a remedy is not cut
	checkWidth(t, whole, 10_000)
	found := collected(b, new(events).collect)
	found.Malformed = nil
	for _, width := range []int{120, 80, 40} {
		var table strings.Builder
		found.print(&table, layout(width))
		checkWidth(t, table.String(), width)
	}
}

// collected returns the result of a listing for the database.
func collected[T any](b *base, collect func(context.Context, *store) (T, error)) T {
	b.t.Helper()
	st := assert.Value((&connection{uri: b.uri, database: b.name}).open(b.t.Context(), 0,
		logging{}))(b.t)
	defer st.close()
	return assert.Value(collect(b.t.Context(), st))(b.t)
}

// On a terminal of 80 columns each event is a whole sentence with its reason. The day appears once.
// Lock names appear only if the listing has several locks.
func TestHistory_NarrowTerminal_SentencesAreWhole(t *testing.T) {
	b := newBase(t)
	b.happened(time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC), sampleEvents()...)
	found := collected(b, new(events).collect)
	var all, one strings.Builder
	found.print(&all, layout(80))
	golden(t, "history-80.golden", all.String())
	found.Events = slices.DeleteFunc(found.Events, func(e eventRow) bool { return e.Name != "reports" })
	found.print(&one, layout(80))
	checkWidth(t, one.String(), 80)
	if strings.Contains(one.String(), "reports") || strings.Count(one.String(), "2026") != 1 ||
		strings.Contains(one.String(), "..") {
		t.Errorf("repeated or cut:\n%s", one.String())
	}
}

// The history records a break by "distlock break", with its author and its reason.
func TestHistory_OfABreak(t *testing.T) {
	b := newBase(t)
	b.holdAlive("balancer", 41)
	b.cli("break", "--yes", "--fence", "41", "balancer", "--why", "ticket 4711").want(t, 0)
	out := b.cli("history", "balancer").want(t, 0, "broken", "ticket 4711", operator()).out
	if n := strings.Count(out, "\n"); n != 2 {
		t.Error(fmt.Sprint(n, " lines:\n", out))
	}
}
