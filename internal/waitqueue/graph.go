package waitqueue

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// lines are the locks of one reading, as a graph of who waits for whom:
//
//   - a waiter waits for all that stand before it in line, but for those that are granted the lock
//     together with it: its neighbours of the same mode;
//   - the first in line waits for all holders; for a permit, for as many of them as hold more than
//     there are permits less one. Readers do not wait for readers;
//   - a holder, that is what its caller does with the lock, waits for every waiting call whose
//     caller says that it holds the lock meanwhile: its work ends when all of them have;
//   - a caller outside of the document waits for all that stand in it. Those outside do not wait
//     for one another: each is stuck if and only if the line is.
//
// Nobody else waits: a holder that no waiting call names may leave at any time.
type lines struct {
	nodes   []*node
	waiters map[bson.ObjectID]*node
	before  map[standing]*node // the parties of an earlier reading; nil in the first
	early   bool               // somebody stuck may have left since his process noted it
}

// A standing is a session in one of its roles.
type standing struct {
	lock string
	ts   bson.ObjectID
	kind kind
}

// A node is a holder, a waiter, or a gate between those who wait and those for whom they do.
type node struct {
	party  catalog.Participant
	lock   string
	kind   kind
	apart  bool  // it waits outside of the document
	alone  bool  // and no note tells of it
	number int64 // of the note that tells so, if it is of another process
	gone   bool  // whatever it waits for: it leaves by itself, or it is not known to stand there

	waitsFor []*node
	need     int // how many of them must go on before it does
	behind   []*node

	missing int     // how many of them have yet to
	goes    bool    // it goes on, or leaves, sooner or later
	stuck   bool    // it did not before anybody gave up
	gaveUp  bool    // it is to break a circle
	in      *circle // the circle that it is in; nil when in none

	index, low int // of the search for circles
}

// kind is what a node is.
type kind int

const (
	junction kind = iota
	holds
	waits
)

func newLines(before *lines) *lines {
	l := &lines{waiters: map[bson.ObjectID]*node{}}
	if before != nil {
		l.before = map[standing]*node{}
		for _, n := range before.nodes {
			if n.kind != junction {
				l.before[n.standing()] = n
			}
		}
	}
	return l
}

// wait makes n wait for need of those given.
func (n *node) wait(need int, those ...*node) {
	n.need += need
	n.waitsFor = append(n.waitsFor, those...)
	for _, other := range those {
		other.behind = append(other.behind, n)
	}
}

// add enters one lock, with those who stand outside of its line.
func (l *lines) add(row catalog.Snapshot, outside []outsider) {
	lock := row.Lock
	var holders, group []*node // group: the last of the line, who are granted the lock together
	for _, p := range lock.Holders() {
		gone := silent(row.Pings[p.Process], row.ServerTime)
		holders = append(holders, l.party(lock.Name, p, holds, gone))
	}
	var last catalog.Participant
	var door *node // that of the last
	enter := func(p catalog.Participant, silent bool, behind *node) *node {
		w := l.party(lock.Name, p, waits, silent)
		if door == nil || p.Mode != last.Mode || p.Limit != last.Limit {
			door, last = l.door(lock.Name, holders, p), p
		}
		if w.wait(1, door); behind != nil {
			w.wait(1, behind)
		}
		return w
	}
	var before *node // that all have left the line who stand before the group
	for _, p := range lock.Waiters {
		if len(group) > 0 && !together(group[0].party, p) {
			before, group = l.left(lock.Name, before, group), nil
		}
		group = append(group, enter(p, silent(row.Pings[p.Process], row.ServerTime), before))
	}
	end := before
	if len(group) > 0 && len(outside) > 0 {
		end = l.left(lock.Name, before, group)
	}
	for _, o := range outside {
		behind := end
		if len(group) > 0 && together(group[0].party, o.Participant) {
			behind = before
		}
		w := enter(o.Participant, o.silent, behind)
		w.apart, w.alone, w.number = true, o.alone, o.number
		if !w.gone && l.unconfirmed(w) {
			w.gone = true
			l.early = l.early || l.before[w.standing()].stuck
		}
	}
}

// door is the gate that opens when holders let p in.
func (l *lines) door(lock string, holders []*node, p catalog.Participant) *node {
	door, need := &node{lock: lock}, len(holders)
	if need > 0 && together(holders[0].party, p) {
		need = 0 // they are readers all
		if limit := int(p.Limit); limit > 0 {
			need = max(0, len(holders)-limit+1)
		}
	}
	if need > 0 {
		door.wait(need, holders...)
	}
	l.nodes = append(l.nodes, door)
	return door
}

// left is the gate that opens when all of a group have left the line, and all before it: a member
// that gives up lets nobody in who stands behind others.
func (l *lines) left(lock string, before *node, group []*node) *node {
	gate := &node{lock: lock}
	gate.wait(len(group), group...)
	if before != nil {
		gate.wait(1, before)
	}
	l.nodes = append(l.nodes, gate)
	return gate
}

// together reports whether two parties are granted a lock at the same time, if there is room.
func together(a, b catalog.Participant) bool {
	return a.Mode == b.Mode && a.Limit == b.Limit && a.Mode != catalog.Exclusive
}

func (l *lines) party(lock string, p catalog.Participant, k kind, silent bool) *node {
	n := &node{party: p, lock: lock, kind: k}
	unseen := l.before != nil && l.before[n.standing()] == nil
	n.gone = silent || unseen
	l.nodes = append(l.nodes, n)
	if k == waits {
		l.waiters[p.TS] = n
	}
	return n
}

func (n *node) standing() standing { return standing{n.lock, n.party.TS, n.kind} }

// unconfirmed reports whether it is not certain that an outsider of another process stood there at
// an instant between the two readings: its note may be older than both. The next one may have been
// under way at the first reading; the one after that was made later.
func (l *lines) unconfirmed(n *node) bool {
	before := l.before[n.standing()]
	return before != nil && n.number > 0 && n.number < before.number+2
}

// silentAfter is how many ping intervals a process may miss before it may be dead.
const silentAfter = 2

// silent reports whether a process may be dead: then the takeover rule ends its waiting and
// holding, and nobody needs to give up for that.
func silent(state catalog.PingState, now time.Time) bool {
	ping := state.Ping
	if ping == nil || ping.Condemned != nil {
		return true
	}
	return ping.Interval > 0 && !now.IsZero() && now.Sub(ping.At) > silentAfter*ping.Interval
}

// link makes the holders wait for the waiting calls that name them.
func (l *lines) link() {
	naming := map[bson.ObjectID][]*node{}
	for _, n := range l.nodes {
		if n.kind == waits {
			for _, ts := range n.party.Holds {
				naming[ts] = append(naming[ts], n)
			}
		}
	}
	for _, n := range l.nodes {
		if n.kind == holds {
			n.wait(len(naming[n.party.TS]), naming[n.party.TS]...)
		}
	}
}

// waitsForText says what a waiter waits for.
func (n *node) waitsForText(other *node) string {
	does := "waits before it"
	switch {
	case other.kind == holds && other.party.Mode == catalog.Permit:
		does = fmt.Sprintf("holds one of %d permits", other.party.Limit)
	case other.kind == holds:
		does = "holds it"
	}
	return fmt.Sprintf("%s waits for %s, where %s %s", named(n.party), quoted(n.lock),
		named(other.party), does)
}

func named(p catalog.Participant) string {
	text := catalog.Printable(p.Who, 200)
	if text == "" {
		text = catalog.Printable(p.Process, 200)
	}
	if p.Why != "" {
		text += " (" + quoted(p.Why) + ")"
	}
	return text
}

func quoted(s string) string { return `"` + catalog.Printable(s, 200) + `"` }
