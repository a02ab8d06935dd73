package words_test

import (
	"strings"
	"testing"
	"time"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

// The sentence of an event names the process that the event concerns, the process that caused the
// event, and the reason with its figures.
func TestSentence_NamesSubjectCauseAndReason(t *testing.T) {
	t.Parallel()
	const dead, living = "vm:13404:1700000000:a", "vm:21909:1700000001:b"
	for want, e := range map[string]history.Entry{
		"vm:13404 was evicted by vm:21909: it was silent for the takeover time": {
			Kind: words.Evicted, Process: living, Previous: dead, Fence: 4, Rule: "watch",
			Evidence: "rule watch: x"},
		"vm:13404 was evicted from the queue by vm:21909: its process has missed two pings": {
			Kind: words.Evicted, Process: living, Previous: dead, Rule: "silent",
			Evidence: "rule silent: x"},
		"vm:13404 was evicted from the queue: its process has missed two pings": {Kind: words.Evicted,
			Previous: dead, Rule: "silent", Evidence: "rule silent: x"},
		"vm:21909 took it over from vm:13404: it was silent for the takeover time, by all clocks": {
			Kind: words.TakenOver, Process: living, Previous: dead, Fence: 5, Rule: "witnesses",
			Evidence: "rule witnesses: x", WaitedMS: 60_000},
		"vm:21909 took it over from vm:13404: it was declared dead before": {Kind: words.TakenOver,
			Process: living, Previous: dead, Rule: "condemned", Evidence: "rule condemned: x"},
		"vm:21909 took it over from vm:13404: x": {Kind: words.TakenOver, Process: living,
			Previous: dead, Rule: "a later rule", Evidence: "x"},
		"vm:21909 was granted it from the queue after 5s: nightly": {Kind: words.Granted, Process: living,
			WaitedMS: 5_000, Why: "nightly"},
		"vm:13404 released it after 5s": {Kind: words.Released, Process: dead, HeldMS: 5_000,
			Fence: 1, Why: "nightly"},
		"vm:13404 tried to release it after 12s: no ping": {Kind: words.Released, Process: dead,
			HeldMS: 12_000, Cause: "no ping"},
		"vm:13404 lost it after 12s: no ping": {Kind: words.Lost, Process: dead, HeldMS: 12_000,
			Cause: "no ping"},
		"vm:13404 lost it to a break by alice@desk:71: ticket": {Kind: words.Broken,
			Process: "alice@desk:71", Previous: dead, Why: "ticket"},
		"vm:13404 released it late": {Kind: words.ReleasedLate, Process: dead, Fence: 5},
		"vm:13404 released late an entry whose state was unknown": {
			Kind: words.ReleasedLate, Process: dead},
	} {
		assert.Equal(t, words.Sentence(e, words.Short), want, "got  %q\nwant %q")
	}
}

// Marks of trouble come first, because a narrow table cuts off the last marks. A lease has a
// different mark after its expiry.
func TestMarks_TroubleFirst(t *testing.T) {
	t.Parallel()
	const who = "p:1:1:a:election:ab"
	for want, i := range map[string]distlock.LockInfo{
		"silent, lease ran out, leader, foreign": {Held: true, Process: "p:1:1:a", Who: who,
			HasPing: true, PingAge: time.Hour, Takeover: time.Minute, Lease: time.Minute,
			LeaseAge: time.Hour, Foreign: true},
		"lease of 1m0s": {Held: true, HasPing: true, Lease: time.Minute, LeaseAge: time.Minute},
		"lease ran out": {Held: true, HasPing: true, Lease: time.Minute, LeaseAge: 61 * time.Second},
		"":              {Held: true, HasPing: true, LeaseAge: -1},
		"candidate":     {Place: 1, HasPing: true, Who: who},
	} {
		assert.Equal(t, strings.Join(words.Marks(i), ", "), want, "got %q, want %q")
	}
}
