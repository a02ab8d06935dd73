package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/cmd/balancer-demo/internal/referee"
	"mongodlm/cmd/internal/words"
)

type report struct {
	interrupted   string // the signal that stopped the demo early
	took          time.Duration
	told          ledger
	faults        []fault
	before, after cluster.Cluster
	changes       []cluster.Change
	violations    []referee.Violation
}

// report checks the records in the database for violations, and adds the summary of the events.
func (d *demo) report(ctx context.Context) (report, error) {
	after, err := d.meta.Read(ctx)
	if err != nil {
		return report{}, err
	}
	rounds, changes, err := d.meta.History(ctx)
	if err != nil {
		return report{}, err
	}
	judged := referee.Judge(referee.History{
		Before: d.before.Chunks, After: after.Chunks, Rounds: rounds, Changes: changes})
	return report{took: d.since(), told: d.ledger, faults: d.faults.plan, before: d.before,
		after: after, changes: changes, violations: slices.Concat(d.ledger.breaches, judged)}, nil
}

func (r report) balanced() bool { return len(cluster.Candidates(r.after)) == 0 }

// ok reports whether the demo succeeded. The demo succeeded if the cluster is balanced, every fault
// was survived and there is no violation.
func (r report) ok() bool {
	open := slices.ContainsFunc(r.faults, func(f fault) bool { return !f.survived })
	return r.balanced() && !open && len(r.violations) == 0
}

func (r report) text() string {
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	state := "the cluster is balanced"
	if !r.balanced() {
		state = "the cluster is NOT balanced"
	}
	if r.interrupted != "" {
		state = fmt.Sprintf("ended early (%s): %s", r.interrupted, state)
	}
	add("%s after %v\n", state, short(r.took))
	r.addRounds(add)
	add("\ntakeovers %d", len(r.told.takeovers))
	for _, t := range r.told.takeovers {
		add("  fence %d, after a wait of %v, by %s\n    %s", t.Fence, short(t.Waited),
			words.Shown(t.Process, 80), words.Shown(t.Text, 1000))
	}
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

func (r report) addRounds(add func(string, ...any)) {
	moves := map[string]int{}
	for _, c := range r.changes {
		moves[c.Process]++
	}
	add("          rounds   moves  waits for the lock: mean, longest")
	row := func(who string, m member, moves int) {
		mean := m.waited / time.Duration(max(1, m.rounds))
		add("  %-6s%8d%8d%11v%11v  %s", who, m.rounds, moves, short(mean), short(m.longest), m.process)
	}
	members := slices.Clone(r.told.members)
	slices.SortStableFunc(members, func(a, b *member) int { return cmp.Compare(a.number, b.number) })
	all := member{}
	for _, m := range members {
		row(fmt.Sprintf("#%d", m.number), *m, moves[m.process])
		all.rounds, all.waited = all.rounds+m.rounds, all.waited+m.waited
		all.longest = max(all.longest, m.longest)
	}
	row("all", all, len(r.changes))
}

func (r report) addFaults(add func(string, ...any)) {
	survived, happened := 0, 0
	var rest strings.Builder
	for _, f := range r.faults {
		state := "NOT survived"
		switch {
		case f.process == "":
			fmt.Fprintf(&rest, "\n  not injected: %s", f.kind)
			continue
		case f.survived:
			survived, happened = survived+1, happened+1
			continue
		case r.interrupted != "":
			state = "outcome unknown"
		}
		happened++
		fmt.Fprintf(&rest, "\n  %s: %s of %s at %v", state, f.kind, words.Shown(f.process, 80),
			short(f.at))
	}
	add("\nfaults survived %d of %d, writes of a stale holder refused %d%s", survived, happened,
		r.told.refused, rest.String())
}

// A ledger summarizes the events of the balancers.
type ledger struct {
	members   []*member // in the order of their first events
	takeovers []balancer.Event
	breaches  []referee.Violation
	refused   int // writes of a stale holder that matched no document
	rounds    int // rounds of all members
}

// A member is a process that has run a round.
type member struct {
	number          int
	process         string // the process id
	rounds          int
	waited, longest time.Duration // waits for the lock: the sum over its rounds, and the longest
}

func (l *ledger) note(e balancer.Event) {
	switch e.Kind {
	case balancer.Entered:
		l.rounds++
		i := slices.IndexFunc(l.members, func(m *member) bool { return m.process == e.Process })
		if i < 0 {
			i, l.members = len(l.members), append(l.members, &member{number: e.Number, process: e.Process})
		}
		m := l.members[i]
		m.rounds, m.waited, m.longest = m.rounds+1, m.waited+e.Waited, max(m.longest, e.Waited)
	case balancer.TookOver:
		l.takeovers = append(l.takeovers, e)
	case balancer.Refused:
		l.refused++
	case balancer.Breach:
		l.breaches = append(l.breaches, referee.Violation{
			Breach: referee.StaleWrite, Subject: e.Chunk,
			Evidence: fmt.Sprintf("%s wrote with fence %d after it lost the lock", e.Process, e.Fence)})
	}
}
