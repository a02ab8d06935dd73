package claim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/simulation"
)

// The rules of chains, as they appear in test reports.
const (
	ruleKey   = "one row of a key"
	ruleOrder = "order within a key"
)

// slowest is the longest time between two rows of a chain. It includes the work of a handler and
// the wait for an event.
const slowest = 80 * time.Second

// chain puts the rows of some walks into chains. Such a walk lasts longer, because the rows of a
// chain are handled one after the other.
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
		longest[p.keys[i]] += 1 + (10-i%10)/10 // and the row that a handler may add
	}
	delete(longest, "")
	most := 0
	for _, n := range longest {
		most = max(most, n)
	}
	s.Quiet += time.Duration(most) * slowest
}

// A row that a handler adds is in the chain of the handler's row.
func (p *play) key(id int) string {
	if p.keys == nil {
		return ""
	}
	return p.keys[id%p.n]
}

// first reports a violation if an earlier row of the chain is neither done nor dead. It ignores
// rows that the server refuses to change.
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
