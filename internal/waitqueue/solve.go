package waitqueue

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// This file says who of a graph has to give up. Processes that look at the same picture find the
// same ones, and one that sees only what its own waiters wait for finds the same ones among them.

// A circle is a largest set of those who are stuck and wait for one another, by whatever ways.
type circle struct {
	waiting  map[string]int // how many of it wait for a lock
	class    int            // the highest of its candidates, see class
	notes    bool           // of some a note alone tells other processes
	youngest time.Time      // the last that came of those of that class
	came     map[string]time.Time
}

// solve returns those who have to give up so that nobody is stuck any more: as many circles as
// there are, nobody who is in none, and nobody without whom the others who give up would do. It
// takes a pass over the graph for the stuck, one for the circles, one for all who give up, and what
// needed says.
func (l *lines) solve() []*node {
	var start []*node
	for _, n := range l.nodes {
		n.missing = n.need
		if n.gone || n.need <= 0 {
			start = append(start, n)
		}
	}
	proceed(start)
	var told []*node
	for _, n := range l.candidates() {
		if !n.goes {
			n.gaveUp = true
			told = append(told, n)
			proceed([]*node{n})
		}
	}
	steps := needSteps
	for _, n := range slices.Backward(told) {
		n.gaveUp = n.needed(&steps)
	}
	return slices.DeleteFunc(told, func(n *node) bool { return !n.gaveUp })
}

// stuckIn are the locks in which somebody is stuck.
func (l *lines) stuckIn() (names []string) {
	for _, n := range l.nodes {
		if n.stuck {
			names = append(names, n.lock)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// proceed lets those go on, and all that wait for nobody any more then. All others are stuck,
// whatever those who go on do. Linear.
func proceed(next []*node) {
	for len(next) > 0 {
		n := next[len(next)-1]
		next = next[:len(next)-1]
		if n.goes {
			continue
		}
		n.goes = true
		for _, b := range n.behind {
			if b.missing--; b.missing == 0 {
				next = append(next, b)
			}
		}
	}
}

// needSteps bounds what needed does for one picture. Beyond it somebody may be told who is in a
// circle that another who is told would have broken as well.
const needSteps = 4_000_000

// needed reports whether somebody would be stuck if n, of all who give up, did not.
func (n *node) needed(steps *int) bool {
	if *steps <= 0 {
		return true
	}
	n.gaveUp, n.goes = false, false
	by := []*node{n} // those who may go on by n alone
	for i := 0; i < len(by); i++ {
		*steps -= 1 + len(by[i].behind) + len(by[i].waitsFor)
		for _, b := range by[i].behind {
			if b.goes {
				b.goes = false
				by = append(by, b)
			}
		}
	}
	var next []*node
	for _, b := range by {
		b.missing = b.need
		for _, w := range b.waitsFor {
			if w.goes {
				b.missing--
			}
		}
		if b.gone || b.gaveUp || b.missing <= 0 {
			next = append(next, b)
		}
	}
	proceed(next)
	if n.goes {
		return false
	}
	proceed([]*node{n})
	return true
}

// candidates are those who can break a circle, the one that is to do so first in front: the waiters
// in it who hold something. There is one in every circle, for a waiter behind another in line came
// later.
//
// It is the one that gives way to most: to those in its circle who wait for what it holds. Of equal
// ones it is the youngest. One whose process looks at the circle seldom is left out, as long as
// there are others.
func (l *lines) candidates() []*node {
	l.findCircles()
	var list []*node
	for _, n := range l.nodes {
		if n.in != nil && n.kind == waits && len(n.party.Holds) > 0 {
			list = append(list, n)
			n.in.note(n)
		}
	}
	type rank struct{ soon, weight int }
	ranks := make(map[*node]rank, len(list))
	for _, n := range list {
		r := rank{weight: n.weight()}
		if n.in.looksSoon(n) {
			r.soon = 1
		}
		ranks[n] = r
	}
	slices.SortFunc(list, func(a, b *node) int {
		x, y := ranks[a], ranks[b]
		return cmp.Or(cmp.Compare(y.soon, x.soon), cmp.Compare(y.weight, x.weight),
			b.party.Since.Compare(a.party.Since), bytes.Compare(b.party.TS[:], a.party.TS[:]))
	})
	return list
}

// weight is how many wait in the circle of a waiter for what it holds.
func (n *node) weight() (w int) {
	for _, b := range n.behind {
		if b.kind == holds {
			w += n.in.waiting[b.lock]
		}
	}
	return w
}

// Classes of those who can break a circle, by who knows of it.
const (
	known  = iota // everybody: it stands in the line, or a note tells of it a second later
	abroad        // its process alone: not in a note, or it holds what another Manager has acquired
)

func (n *node) class() int {
	class := known
	if n.alone {
		class = abroad
	}
	for _, b := range n.behind {
		if b.kind == holds && b.party.Process != n.party.Process {
			class = abroad
		}
	}
	return class
}

// sameTime is how much earlier than the last of a circle a process may have come to it that looks
// in time: it has searched since, or does so within as long as it has waited. That is not enough
// where it has to learn of others by their notes: those of all who came before the last are there
// when that one is searched for.
const sameTime = 2 * time.Second

// note enters a candidate of the circle.
func (c *circle) note(n *node) {
	c.notes = c.notes || n.apart
	switch class, since := n.class(), n.party.Since; {
	case class < c.class:
	case class > c.class || c.came == nil:
		c.class, c.youngest, c.came = class, since, map[string]time.Time{n.party.Process: since}
	default:
		if since.After(c.youngest) {
			c.youngest = since
		}
		if since.After(c.came[n.party.Process]) {
			c.came[n.party.Process] = since
		}
	}
}

// looksSoon reports whether the process of a candidate looks at the circle in time.
func (c *circle) looksSoon(n *node) bool {
	early := c.youngest.Sub(c.came[n.party.Process])
	return n.class() == c.class && (early == 0 || !c.notes && early <= sameTime)
}

// findCircles finds the strongly connected parts of the graph of those who are stuck, as Tarjan
// did. Linear.
func (l *lines) findCircles() {
	var open []*node
	index := 0
	var visit func(n *node)
	visit = func(n *node) {
		index++
		n.index, n.low, n.stuck = index, index, true
		at := len(open)
		open = append(open, n)
		for _, w := range n.waitsFor {
			if !w.goes && w.index == 0 {
				visit(w)
			}
			if w.low > 0 { // it is open
				n.low = min(n.low, w.low)
			}
		}
		if n.low < n.index {
			return
		}
		var c *circle
		if len(open)-at > 1 {
			c = &circle{waiting: map[string]int{}}
		}
		for _, m := range open[at:] {
			if m.in, m.low = c, 0; c != nil && m.kind == waits {
				c.waiting[m.lock]++
			}
		}
		open = open[:at]
	}
	for _, n := range l.nodes {
		if !n.goes && n.index == 0 {
			visit(n)
		}
	}
}

// chain is the shortest way from a waiter in a circle back to itself, a sentence for each waiter on
// it.
func (n *node) chain() []string {
	way := n.way(false)
	if way == nil {
		way = n.way(true)
	}
	var chain []string
	for i, at := range way {
		if at.kind != waits || i == len(way)-1 {
			continue
		}
		next := slices.IndexFunc(way[i+1:], func(n *node) bool { return n.kind != junction })
		chain = append(chain, at.waitsForText(way[i+1+next]))
	}
	return chain
}

// way is the shortest way from n to n; by way of the gates alone only if they may be passed.
func (n *node) way(gates bool) []*node {
	from := map[*node]*node{}
	for todo := []*node{n}; len(todo) > 0; todo = todo[1:] {
		at := todo[0]
		for _, next := range at.waitsFor {
			switch {
			case next == n:
				way := []*node{n}
				for ; at != nil; at = from[at] {
					way = append(way, at)
				}
				slices.Reverse(way)
				return way
			case next.in != n.in || from[next] != nil:
				continue
			case !gates && at.kind == junction && next.kind == junction:
				continue
			}
			from[next] = at
			todo = append(todo, next)
		}
	}
	return nil
}
