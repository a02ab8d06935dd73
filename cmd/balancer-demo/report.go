package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/cmd/balancer-demo/internal/referee"
	"mongodlm/cmd/internal/words"
)

type report struct {
	ended         error // the reason why the demo ended early
	took          time.Duration
	takeovers     int
	faults        []fault
	before, after cluster.Cluster
	rounds        []cluster.Round
	violations    []referee.Violation
}

// report checks the records in the database for violations, and adds the summary of the events.
func (d *demo) report(ctx context.Context) (report, error) {
	after, err := d.meta.Read(ctx)
	if err != nil {
		return report{}, err
	}
	rounds, err := d.meta.Rounds(ctx)
	if err != nil {
		return report{}, err
	}
	violations := referee.Judge(referee.History{Before: d.before.Chunks, After: after.Chunks,
		Rounds: rounds})
	return report{took: d.since(), takeovers: d.takeovers, faults: d.faults.plan, before: d.before,
		after: after, rounds: rounds, violations: violations}, nil
}

func (r report) balanced() bool { return len(cluster.Candidates(r.after)) == 0 }

// ok reports whether the demo succeeded. The demo succeeded if it did not end early, the cluster is
// balanced, every fault was survived and there is no violation.
func (r report) ok() bool {
	open := slices.ContainsFunc(r.faults, func(f fault) bool { return !f.survived })
	return r.ended == nil && r.balanced() && !open && len(r.violations) == 0
}

func (r report) text() string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	state := "the cluster is balanced"
	if !r.balanced() {
		state = "the cluster is NOT balanced"
	}
	if r.ended != nil {
		state = fmt.Sprintf("ended early (%s): %s", words.Shown(r.ended.Error(), 1000), state)
	}
	add("%s after %v\n", state, short(r.took))
	r.addRounds(add)
	add("\ntakeovers %d", r.takeovers)
	add("\nchunks on                   before   after")
	before, after := r.before.Counts(), r.after.Counts()
	for _, s := range r.before.Shards {
		name := words.Shown(s.ID, 16)
		if s.Draining {
			name += " draining"
		}
		add("  %-24s%8d%8d", name, before[s.ID], after[s.ID])
	}
	r.addFaults(add)
	if len(r.violations) == 0 {
		add("\nviolations none: no overlapping rounds, no write of a stale holder, " +
			"no chunk lost")
		return b.String()
	}
	add("\nVIOLATIONS %d", len(r.violations))
	for _, v := range r.violations {
		add("  %s: %s\n    %s", v.Breach, words.Shown(v.Subject, 200), words.Shown(v.Evidence, 1000))
	}
	return b.String()
}

// addRounds adds a line for each balancer.
func (r report) addRounds(add func(string, ...any)) {
	rounds, moves, allMoves := map[int]int{}, map[int]int{}, 0
	for _, round := range r.rounds {
		rounds[round.Number]++
		moves[round.Number] += len(round.Moves)
		allMoves += len(round.Moves)
	}
	add("          rounds   moves")
	for _, number := range slices.Sorted(maps.Keys(rounds)) {
		add("  #%-5d%8d%8d", number, rounds[number], moves[number])
	}
	add("  all   %8d%8d", len(r.rounds), allMoves)
}

func (r report) addFaults(add func(string, ...any)) {
	survived := 0
	var rest strings.Builder
	for _, f := range r.faults {
		switch {
		case f.survived:
			survived++
		case f.process == "":
			fmt.Fprintf(&rest, "\n  not injected: %s", f.kind)
		case r.ended != nil:
			fmt.Fprintf(&rest, "\n  outcome unknown: %s of %s", f.kind, words.Shown(f.process, 80))
		default:
			fmt.Fprintf(&rest, "\n  NOT survived: %s of %s", f.kind, words.Shown(f.process, 80))
		}
	}
	add("\nfaults survived %d of %d%s", survived, len(r.faults), rest.String())
}
