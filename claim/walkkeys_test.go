package claim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/simulation"
)

// Rules of chains.
const (
	ruleKey   = "one row of a key"
	ruleOrder = "order within a key"
)

// slowest is how long a handler of a walk works at most, and a row waits for what others found out.
const slowest = 80 * time.Second

// chain puts rows of some walks into chains, most of them into few, and gives the walk more time to
// end: the longest chain is worked on one row after the other.
func (p *play) chain(s *simulation.Schedule) {
	r := rand.New(rand.NewPCG(p.seed, 23))
	if r.IntN(2) == 0 {
		return
	}
	p.cfg.Key = "chain"
	p.keys = make([]string, p.n)
	keys, longest := 1+r.IntN(6), map[string]int{}
	for i := range p.keys {
		if key := r.IntN(keys + 1); key > 0 { // the others are in no chain
			p.keys[i] = fmt.Sprint("k", key)
		}
		longest[p.keys[i]] += 1 + (10-i%10)/10 // those that may be added, too
	}
	delete(longest, "")
	most := 0
	for _, n := range longest {
		most = max(most, n)
	}
	s.Quiet += time.Duration(most) * slowest
}

// key is that of a row: a row that another one adds is in its chain.
func (p *play) key(id int) string {
	if p.keys == nil {
		return ""
	}
	return p.keys[id%p.n]
}

// first judges that a row is the first one of its chain that is left, as it begins. One that the
// server refused to change may have been left out.
func (p *play) first(id int, fence int64) {
	if p.key(id) == "" {
		return
	}
	for _, row := range p.store.All() { // by age
		other := number(row)
		if other == id {
			return
		}
		s := row.Mark.State
		if p.key(other) == p.key(id) && !p.refused[other] && s != rows.Done && s != rows.Dead {
			p.violated(ruleOrder, "row %d of %s begins under fence %d, and row %d is %s", id, p.key(id),
				fence, other, s)
		}
	}
}
