package claim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"mongodlm/internal/test/simulation"
)

// rowOps are the commands on rows that can have faults. A command that occurs several times in this
// list has more faults.
var rowOps = []string{"claim", "claim", "claim", "end", "end", "end", "current", "claimed", "claimed",
	"wake", "slots", "first", "held", "settle"}

// walk returns a random schedule of the simulation, and the queue that runs in it. Some faults of
// the schedule affect the commands on locks, and some affect the commands on rows.
func walk(seed uint64) (simulation.Schedule, *play) {
	s := simulation.Walk(seed)
	r := rand.New(rand.NewPCG(seed, 21))
	s.Name, s.Foreign = fmt.Sprintf("walk %d of a queue", seed), nil
	p := &play{seed: seed, n: 4 + r.IntN(30), poison: map[int]bool{},
		refused: map[int]bool{}}
	t := s.Timing
	p.cfg = Config{Workers: 1 + r.IntN(3), MaxAttempts: 3 + r.IntN(4), Backoff: time.Second,
		growth: 1}.withDefaults()
	if r.IntN(2) == 0 {
		p.poison[r.IntN(p.n)] = true
	}
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(3) {
			p.refused[r.IntN(p.n)] = true
		}
		p.from = time.Duration(r.Int64N(int64(s.Length)))
		p.to = min(s.Length, p.from+time.Duration(r.IntN(180))*time.Second)
	}
	var list []simulation.Process
	for _, one := range s.Processes {
		if one.Every == 0 {
			one.Users = []func(*simulation.User){func(u *simulation.User) { p.user(u, s.Streams) }}
			list = append(list, one)
		}
	}
	s.Processes = list
	for i := range s.Faults {
		s.Faults[i].Process %= len(list)
		if s.Faults[i].Op != "" && r.IntN(3) > 0 {
			s.Faults[i].Op = op(rowOps[r.IntN(len(rowOps))])
		}
	}
	s.Quiet = 8*t.Takeover + 8*time.Minute
	p.chain(&s)
	s.World = func(o *simulation.Outside) { p.begin(o, s) }
	return s, p
}

// In a walk with random faults:
//   - A row has at most one handler at a time.
//   - Every row that can be done is done in time, and marked done once.
//   - A row is dead only after MaxAttempts attempts.
func TestWalk_OfAQueue_FindsNothing(t *testing.T) {
	t.Parallel()
	sum, last := map[string]int64{}, &play{}
	add := func() {
		for what, times := range last.counts {
			sum[what] += times
		}
	}
	simulation.Walks(t, 15, 10, func(seed uint64) (s simulation.Schedule) {
		add()
		s, last = walk(seed)
		return s
	})
	add()
	t.Log(sum)
}
