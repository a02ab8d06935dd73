package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/cmd/balancer-demo/internal/cluster"
	"mongodlm/cmd/balancer-demo/internal/referee"
	"mongodlm/cmd/balancer-demo/internal/view"
)

// ledger is what the parent was told.
type ledger struct {
	balancers map[int]*view.Balancer
	processes map[string]*member // by process id
	order     []*member          // as they came
	takeovers []view.Takeover
	breaches  []referee.Violation
	refused   int
	rounds    int
	deaths    int
	failed    map[int]string // last error told by a balancer, until its next round
	holder    string         // process of the last round begun
	longest   int            // how many were seen in line at most
}

// member is one process that was ever a balancer.
type member struct {
	view.Rounds
	pid int // of the system
}

func newLedger() *ledger {
	return &ledger{balancers: map[int]*view.Balancer{}, processes: map[string]*member{},
		failed: map[int]string{}}
}

// number is that of the balancer that a process is or was; 0 for a stranger.
func (l *ledger) number(process string) int {
	if m := l.processes[process]; m != nil {
		return m.Number
	}
	return 0
}

func (l *ledger) of(number int) *view.Balancer {
	b := l.balancers[number]
	if b == nil {
		b = &view.Balancer{Number: number, Condition: view.Running, PingAge: -1}
		l.balancers[number] = b
	}
	return b
}

func (l *ledger) condition(number int, c view.Condition) { l.of(number).Condition = c }

// restarted notes that a number is another process now, which has not pinged yet.
func (l *ledger) restarted(number, pid int) {
	b := l.of(number)
	b.PID, b.Condition, b.PingAge = pid, view.Running, -1
}

// now reports whether a process id belongs to the process that has its number at present, and not
// to a dead one before it.
func (l *ledger) now(process string) bool {
	m := l.processes[process]
	return m != nil && m.pid == l.of(m.Number).PID
}

func (l *ledger) note(at time.Duration, e balancer.Event) {
	b := l.of(e.Number)
	if b.PID == 0 {
		b.PID = e.PID
	}
	m := l.processes[e.Process]
	if m == nil {
		m = &member{view.Rounds{Number: e.Number, Process: e.Process}, e.PID}
		l.processes[e.Process], l.order = m, append(l.order, m)
	}
	switch e.Kind {
	case balancer.Entered:
		l.rounds++
		b.Rounds++
		b.Fence = e.Fence
		m.Rounds.Rounds++
		m.Waited += e.Waited
		m.LongestWait = max(m.LongestWait, e.Waited)
		l.holder = e.Process
	case balancer.MovedOne:
		b.Moves++
		m.Moves++
	case balancer.TookOver:
		l.takeovers = append(l.takeovers, view.Takeover{
			At: at, From: l.dead(e.Text), To: e.Process, Fence: e.Fence, Waited: e.Waited,
			Evidence: e.Text})
	case balancer.Refused:
		l.refused++
	case balancer.Breach:
		l.breaches = append(l.breaches, referee.Violation{
			Breach: referee.StaleWrite, Subject: e.Chunk,
			Evidence: fmt.Sprintf("%s wrote with fence %d after it had lost the lock", e.Process, e.Fence)})
	}
}

// dead is the process of which the evidence of a takeover speaks; the last holder when it names none
// that is known.
func (l *ledger) dead(evidence string) string {
	for process := range l.processes {
		if strings.Contains(evidence, strconv.Quote(process)) {
			return process
		}
	}
	return l.holder
}

// stood notes in which places of the line the balancers were seen.
func (l *ledger) stood(line []view.Waiter) {
	l.longest = max(l.longest, len(line))
	for i, w := range line {
		if m := l.processes[w.Process]; m != nil {
			m.Place = max(m.Place, i+1)
		}
	}
}

// report judges the records in the database and adds what the parent was told.
func (d *demo) report(ctx context.Context) (view.Report, error) {
	after, err := d.meta.Read(ctx)
	if err != nil {
		return view.Report{}, err
	}
	rounds, changes, err := d.meta.History(ctx)
	if err != nil {
		return view.Report{}, err
	}
	r := view.Report{
		Balanced: len(cluster.Candidates(after)) == 0, Duration: d.since(),
		RoundsOnly: d.o.rounds > 0,
		Handovers:  handovers(rounds, d.ledger.takeovers), LongestLine: d.ledger.longest,
		Takeovers: d.ledger.takeovers, Migrations: migrations(changes),
		Faults: d.faults.list(), Refused: d.ledger.refused,
		Before: loadsOf(d.before), After: loadsOf(after), Violations: d.ledger.breaches,
	}
	r.Violations = append(r.Violations, referee.Judge(referee.History{
		Before: d.before.Chunks, After: after.Chunks, Rounds: rounds, Changes: changes,
	})...)
	for _, m := range d.ledger.order {
		if m.Rounds.Rounds > 0 {
			r.Balancers = append(r.Balancers, m.Rounds)
		}
	}
	slices.SortStableFunc(r.Balancers, func(a, b view.Rounds) int { return cmp.Compare(a.Number, b.Number) })
	return r, nil
}

// handovers counts how often the lock went to another process other than by force.
func handovers(rounds []cluster.Round, takeovers []view.Takeover) int {
	rounds = slices.Clone(rounds)
	slices.SortFunc(rounds, func(a, b cluster.Round) int { return cmp.Compare(a.Fence, b.Fence) })
	forced := map[int64]bool{}
	for _, t := range takeovers {
		forced[t.Fence] = true
	}
	n := 0
	for i := 1; i < len(rounds); i++ {
		if rounds[i].Process != rounds[i-1].Process && !forced[rounds[i].Fence] {
			n++
		}
	}
	return n
}

func migrations(changes []cluster.Change) []view.Migrations {
	counts := map[string]int{}
	for _, c := range changes {
		counts[c.NS]++
	}
	var all []view.Migrations
	for ns, n := range counts {
		all = append(all, view.Migrations{Namespace: ns, Chunks: n})
	}
	slices.SortFunc(all, func(a, b view.Migrations) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return all
}

func loadsOf(c cluster.Cluster) []view.Load {
	counts := c.Counts()
	var all []view.Load
	for _, s := range c.Shards {
		l := view.Load{Shard: s.ID, Draining: s.Draining, Collections: counts[s.ID]}
		for _, n := range l.Collections {
			l.Chunks += n
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b view.Load) int { return cmp.Compare(a.Shard, b.Shard) })
	return all
}
