package ui

import (
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

// What a graph shows at most.
const (
	maxNodes = 24
	maxLine  = 8 // waiters of one lock
)

// A wait is one caller that waits for another.
type wait struct {
	from, to bson.ObjectID
	lock     string
}

// waits are who waits for whom. A caller is known by one of its lock sessions.
type waits struct {
	callers map[bson.ObjectID]distlock.LockInfo
	out, in map[bson.ObjectID][]wait
	of      map[string][]bson.ObjectID // the callers of a lock: its holders, then who waits
}

// whoWaits joins the lines of all locks. The holder of one lock and the waiter for another are one
// caller if the waiter said so.
func whoWaits(l *listing) *waits {
	g := &waits{callers: map[bson.ObjectID]distlock.LockInfo{}, out: map[bson.ObjectID][]wait{},
		in: map[bson.ObjectID][]wait{}, of: map[string][]bson.ObjectID{}}
	same := map[bson.ObjectID]bson.ObjectID{} // of a session that is held: that of the waiter
	for _, k := range l.locks {
		for _, w := range k.Line {
			for _, held := range w.Holds {
				if _, known := same[held]; !known {
					same[held] = w.Session
				}
			}
		}
	}
	id := func(s bson.ObjectID) bson.ObjectID {
		if w, ok := same[s]; ok {
			return w
		}
		return s
	}
	for _, k := range l.locks {
		if len(k.Line) == 0 {
			continue
		}
		for _, h := range k.Holders {
			if h.Held {
				g.add(k.Name, id(h.Session), h)
			}
		}
		for i, w := range k.Line {
			if len(w.Holds) == 0 && i >= maxLine {
				continue
			}
			g.add(k.Name, id(w.Session), w)
			for _, h := range k.Holders {
				if h.Held && len(g.out[id(w.Session)]) < maxNodes {
					e := wait{id(w.Session), id(h.Session), k.Name}
					g.out[e.from] = append(g.out[e.from], e)
					g.in[e.to] = append(g.in[e.to], e)
				}
			}
		}
	}
	return g
}

func (g *waits) add(lock string, caller bson.ObjectID, i distlock.LockInfo) {
	if _, known := g.callers[caller]; !known {
		g.callers[caller] = i
	}
	if len(g.of[lock]) < maxNodes {
		g.of[lock] = append(g.of[lock], caller)
	}
}

// around returns the callers that a lock has to do with, nearest first, and whether one of them
// both waits and is waited for: there is a chain.
func (g *waits) around(lock string) (nodes []bson.ObjectID, chain bool) {
	seen := map[bson.ObjectID]bool{}
	nodes = slices.Clone(g.of[lock])
	for _, n := range nodes {
		seen[n] = true
	}
	for i := 0; i < len(nodes); i++ {
		out, in := g.out[nodes[i]], g.in[nodes[i]]
		chain = chain || len(out) > 0 && len(in) > 0
		for _, e := range slices.Concat(out, in) {
			for _, n := range []bson.ObjectID{e.from, e.to} {
				if !seen[n] && len(nodes) < maxNodes {
					seen[n] = true
					nodes = append(nodes, n)
				}
			}
		}
	}
	return nodes, chain
}

// The measures of a drawn graph.
const (
	nodeWidth, nodeHeight = 190, 46
	nodeStep, rowStep     = 280, 66
)

// A node is a caller as it is drawn.
type node struct {
	X, Y        int
	Name, Label string
	Tip         string
	Stuck       bool // it is in a circle
}

// An edge is a wait as it is drawn: from a waiter to whom it waits for.
type edge struct {
	X1, Y1, X2, Y2 int
	MX, MY         int // of the text
	Lock, Tip      string
	Back           bool // it closes a circle
}

// A graph is who waits for whom.
type graph struct {
	Width, Height int
	Nodes         []node
	Edges         []edge
	Circle        bool
}

// draw lays the callers around a lock out: who waits stands left of whom it waits for. It returns
// nil when there is neither chain nor circle.
func (g *waits) draw(lock string) *graph {
	nodes, chain := g.around(lock)
	if !chain {
		return nil
	}
	in := map[bson.ObjectID]bool{}
	for _, n := range nodes {
		in[n] = true
	}
	depth, back := g.depths(nodes, in)
	deepest := slices.Max(append([]int{0}, slices.Collect(maps.Values(depth))...))
	rows := make([]int, deepest+1)
	at := map[bson.ObjectID][2]int{}
	d := &graph{Circle: len(back) > 0}
	stuck := g.circle(back)
	for _, n := range nodes {
		column := deepest - depth[n]
		x, y := 10+column*nodeStep, 10+rows[column]*rowStep
		rows[column]++
		at[n] = [2]int{x, y}
		i := g.callers[n]
		d.Nodes = append(d.Nodes, node{x, y, words.Shown(words.Short(i.Process), 24), words.Shown(
			words.Role(i), 24), words.Shown(i.Who, 200) + "\n" + words.Shown(i.Why, 200), stuck[n]})
		d.Width, d.Height = max(d.Width, x+nodeWidth+10), max(d.Height, y+nodeHeight+20)
	}
	for _, n := range nodes {
		for _, e := range g.out[n] {
			if !in[e.to] {
				continue
			}
			a, b := at[e.from], at[e.to]
			line := edge{X1: a[0] + nodeWidth, Y1: a[1] + nodeHeight/2, X2: b[0], Y2: b[1] + nodeHeight/2,
				Lock: words.Shown(e.lock, 16), Tip: words.Named(e.lock), Back: back[e]}
			if line.Back {
				line.X1, line.Y1, line.X2, line.Y2 = a[0]+nodeWidth/2, a[1]+nodeHeight, b[0]+nodeWidth/2, b[1]+
					nodeHeight
			}
			line.MX, line.MY = (line.X1+line.X2)/2, (line.Y1+line.Y2)/2-6
			if line.Back {
				line.MY = max(line.Y1, line.Y2) + 44
				d.Height = max(d.Height, line.MY+12)
			}
			d.Edges = append(d.Edges, line)
		}
	}
	return d
}

// depths says how many stand before each caller at most, and which waits close a circle.
func (g *waits) depths(nodes []bson.ObjectID, in map[bson.ObjectID]bool) (map[bson.ObjectID]int,
	map[wait]bool) {
	depth, open, back := map[bson.ObjectID]int{}, map[bson.ObjectID]bool{}, map[wait]bool{}
	var walk func(n bson.ObjectID) int
	walk = func(n bson.ObjectID) int {
		if d, done := depth[n]; done {
			return d
		}
		open[n] = true
		d := 0
		for _, e := range g.out[n] {
			switch {
			case !in[e.to]:
			case open[e.to]:
				back[e] = true
			default:
				d = max(d, walk(e.to)+1)
			}
		}
		delete(open, n)
		depth[n] = d
		return d
	}
	for _, n := range nodes {
		walk(n)
	}
	return depth, back
}

// circle returns who is in one: whoever can be reached from the end of a wait that closes it and
// reaches its beginning.
func (g *waits) circle(back map[wait]bool) map[bson.ObjectID]bool {
	all := map[bson.ObjectID]bool{}
	for e := range back {
		from, to := reach(e.to, g.out, func(w wait) bson.ObjectID { return w.to }),
			reach(e.from, g.in, func(w wait) bson.ObjectID { return w.from })
		for n := range from {
			if to[n] {
				all[n] = true
			}
		}
	}
	return all
}

// reach returns who can be reached from a caller, itself included.
func reach(from bson.ObjectID, by map[bson.ObjectID][]wait,
	next func(wait) bson.ObjectID) map[bson.ObjectID]bool {
	seen := map[bson.ObjectID]bool{from: true}
	for todo := []bson.ObjectID{from}; len(todo) > 0; todo = todo[1:] {
		for _, e := range by[todo[0]] {
			if n := next(e); !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return seen
}
