package simulation

import (
	"slices"
	"time"

	"mongodlm/catalog"
)

// This file checks that no process waits outside of a full queue forever.

// outsideTurns is the allowed number of grants to other processes while a process waits outside of
// the queue: two rounds of the queue.
const outsideTurns = 2 * catalog.MaxWaiters

// An outsider is a process that waits for a lock.
type outsider struct {
	p    *process
	name string
}

// outside holds the start of a wait without a place in the queue, and the number of grants since.
type outside struct {
	since time.Duration
	turns int
}

// hadTurns checks a change of a lock document with the given number of grants.
func (o *oracle) hadTurns(t turn, granted int) {
	if granted == 0 {
		return
	}
	waiting := o.waiting(t.now.Name)
	for who := range o.outside {
		if who.name == t.now.Name && !slices.Contains(waiting, who.p) {
			delete(o.outside, who)
		}
	}
	for _, p := range waiting {
		who := outsider{p, t.now.Name}
		stands := func(party catalog.Participant) bool { return p.named(party.Process) }
		if slices.ContainsFunc(slices.Concat(partiesOf(t.was), partiesOf(t.now)), stands) {
			delete(o.outside, who)
			continue
		}
		stay := o.outside[who]
		if stay == nil || stay.since < o.troubles {
			stay = &outside{since: o.w.Now()}
			o.outside[who] = stay
		}
		if stay.turns += granted; stay.turns > outsideTurns {
			o.violated("I7", "%s waits outside of the line of %q while others had %d turns", p, who.name,
				stay.turns)
			stay.turns = 0
		}
	}
}

// waiting returns the live processes that wait for a lock.
func (o *oracle) waiting(name string) []*process {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []*process
	for _, p := range o.w.slots {
		if p == nil || p.over() || p.closing != nil {
			continue
		}
		for _, a := range o.attempts[p] {
			if a.name == name && a.waits && !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	return found
}
