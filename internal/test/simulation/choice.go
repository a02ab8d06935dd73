package simulation

import (
	"cmp"
	"slices"
	"time"

	"mongodlm/internal/test/virtual"
)

// choose selects the next event of one instant by the seed. Without a seed Turn and Pick of the
// schedule select the process, and the events of one process keep their order.
func (w *world) choose(due []*virtual.Event) int {
	heads := make([]int, 0, len(due))
	for i, e := range due {
		if !slices.ContainsFunc(heads, func(h int) bool { return due[h].Owner == e.Owner }) {
			heads = append(heads, i)
		}
	}
	slices.SortFunc(heads, func(a, b int) int { return cmp.Compare(due[a].Owner, due[b].Owner) })
	pick := 0
	if len(heads) > 1 {
		n := len(w.done.Options)
		w.done.Options = append(w.done.Options, len(heads))
		if w.s.Seed != 0 {
			pick = int(w.chance("order", due[0].At, uint64(n)) % uint64(len(heads)))
		} else if n == w.s.Turn {
			pick = w.s.Pick
		}
	}
	head := heads[pick]
	if w.s.Seed == 0 {
		return head
	}
	own := make([]int, 0, len(due))
	for i, e := range due {
		if e.Owner == due[head].Owner {
			own = append(own, i)
		}
	}
	return own[w.chance("own order", due[0].At, uint64(due[head].Owner+1))%uint64(len(own))]
}

// chance returns a number that depends only on the seed and the arguments. Removing one fault
// therefore changes as few other events as possible.
func (w *world) chance(what string, at time.Duration, n uint64) uint64 {
	h := w.s.Seed*0x9e3779b97f4a7c15 + uint64(at)*0xbf58476d1ce4e5b9 + n*0x94d049bb133111eb
	for _, c := range []byte(what) {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}
