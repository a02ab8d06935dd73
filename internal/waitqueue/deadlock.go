package waitqueue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// deadlockAfter is how long a waiter waits before it looks for a circle; PostgreSQL's
// deadlock_timeout is the same.
const deadlockAfter = time.Second

// searches are the searches of one who waits.
type searches struct {
	last  time.Duration // monotonic time of the last one
	pause time.Duration // until the next one; zero before the first
}

// due is the monotonic time of the next search: a second after since, then after pauses that double up
// to limit.
func (s searches) due(since, limit time.Duration) time.Duration {
	if s.pause == 0 {
		return since + deadlockAfter
	}
	return s.last + min(s.pause, max(limit, deadlockAfter))
}

// after are the searches once there was one now.
func (s searches) after(now time.Duration) searches {
	return searches{last: now, pause: max(deadlockAfter, 2*s.pause)}
}

// searchDue is the monotonic time at which a waiter looks for a deadlock. Who holds nothing is in no
// circle that it could break. The caller holds mu.
func (w *Waiter) searchDue(limit time.Duration) time.Duration {
	if len(w.Request.Holds) == 0 {
		return w.since + 1<<62
	}
	return w.search.due(w.since, limit)
}

// searchDeadlocks looks for circles through the waiters given and tells those that have to break one.
func (q *Queue) searchDeadlocks(ctx context.Context, ws []*Waiter) {
	now := q.Clock.Now().Mono
	tell := map[bson.ObjectID]func([]string){}
	for _, w := range ws {
		w.mu.Lock()
		w.search = w.search.after(now)
		w.mu.Unlock()
		tell[w.Request.TS] = func(circle []string) { w.tell(Fate{Circle: circle}) }
	}
	q.findCircles(ctx, tell, func() map[string][]catalog.Participant { return nil })
}

// SearchOutside looks for circles through those who wait in the line of a process in which p is the first,
// where that is due, and returns how long until it is due again. Only their own process knows of them: so
// whoever else is in a circle, the one of them that came last has to break it.
func (q *Queue) SearchOutside(ctx context.Context, p *Place) (next time.Duration) {
	now := q.Clock.Now().Mono
	tell := map[bson.ObjectID]func([]string){}
	next = q.Ping
	q.mu.Lock()
	for _, one := range p.line.places {
		if len(one.party.Holds) == 0 {
			continue
		}
		if one.search.due(one.Since, q.Ping) <= now {
			one.search = one.search.after(now)
			tell[one.party.TS] = func(circle []string) {
				select {
				case one.Circle <- circle:
				default: // told before
				}
			}
		}
		next = min(next, one.search.due(one.Since, q.Ping)-now)
	}
	q.mu.Unlock()
	if len(tell) > 0 {
		q.findCircles(ctx, tell, q.outside)
	}
	return next
}

// outside are those of this process who wait for a place in a document, as if they had one, by lock.
func (q *Queue) outside() map[string][]catalog.Participant {
	q.mu.Lock()
	defer q.mu.Unlock()
	parties := map[string][]catalog.Participant{}
	for name, lines := range q.lines {
		for _, l := range lines {
			for _, p := range l.places {
				party := p.party
				party.Since = time.Unix(0, int64(p.Since)) // compared among them only
				parties[name] = append(parties[name], party)
			}
		}
	}
	return parties
}

// findCircles reads all lines and tells those of the sessions that have to break a circle. A read of many
// documents is not of one instant, so a circle must be seen twice: what stands in both readings stood
// there at the instant between them.
func (q *Queue) findCircles(ctx context.Context, tell map[bson.ObjectID]func(circle []string),
	outside func() map[string][]catalog.Participant) {
	var seen *lines
	for range 2 {
		seen = q.readLines(ctx, seen, outside())
		for ts := range tell {
			if seen.circle(ts) == nil {
				delete(tell, ts)
			}
		}
		if len(tell) == 0 {
			return
		}
	}
	for ts, told := range tell {
		told(seen.circle(ts))
	}
}

// readLines reads all lines, with those who stand outside of them. What could not be read stands in
// nobody's way.
func (q *Queue) readLines(ctx context.Context, before *lines, outside map[string][]catalog.Participant) *lines {
	l := newLines(before)
	for row, err := range q.Store.List(ctx, true) {
		if err != nil {
			q.Log.Debug().Err(err).Msg("search for deadlocks")
			continue
		}
		l.add(row, outside[row.Lock.Name]...)
	}
	l.link()
	return l
}

// lines are all locks that somebody waits for, as a graph of who waits for whom:
//
//   - a waiter waits for all that stand before it in line, but for those that are granted the lock
//     together with it: its neighbours of the same mode;
//   - the first in line waits for all holders; for a permit, for as many of them as hold more than
//     there are permits less one. Readers do not wait for readers;
//   - a holder, that is what its caller does with the lock, waits for every waiting call whose
//     caller says that it holds the lock meanwhile: its work ends when all of them have.
//
// Nobody else waits: a holder that no waiting call names may leave at any time.
type lines struct {
	before  *lines // an earlier reading; nil in the first
	nodes   []*node
	waiters map[bson.ObjectID]*node
	stood   map[standing]bool
}

// A standing is a session in one of its roles.
type standing struct {
	lock string
	ts   bson.ObjectID
	kind kind
}

// A node is a holder, a waiter, or a junction between those who wait and those for whom they do.
type node struct {
	party catalog.Participant
	lock  string
	kind  kind
	apart bool // it waits outside of the document: only its own process, which is this one, knows of it
	gone  bool // whatever it waits for: it leaves by itself, or it is not known to stand there

	waitsFor []*node
	need     int // how many of them must go on before it does
	behind   []*node

	missing int  // how many of them have yet to
	goes    bool // it goes on, sooner or later
}

// kind is what a node is.
type kind int

const (
	junction kind = iota
	holds
	waits
)

func newLines(before *lines) *lines {
	return &lines{
		before: before, waiters: map[bson.ObjectID]*node{}, stood: map[standing]bool{},
	}
}

// wait makes n wait for need of those given.
func (n *node) wait(need int, those ...*node) {
	n.need += need
	n.waitsFor = append(n.waitsFor, those...)
	for _, other := range those {
		other.behind = append(other.behind, n)
	}
}

// add enters one lock, with those who stand behind its line.
func (l *lines) add(row catalog.Snapshot, outside ...catalog.Participant) {
	lock := row.Lock
	var ahead []*node
	for _, p := range lock.Holders() {
		ahead = append(ahead, l.party(row, p, holds))
	}
	need := len(ahead)
	for rest := slices.Concat(lock.Waiters, outside); len(rest) > 0; {
		n := 1
		for n < len(rest) && together(rest[0], rest[n]) {
			n++
		}
		if len(ahead) > 0 && ahead[0].kind == holds && together(ahead[0].party, rest[0]) {
			need = 0 // they are readers all
			if limit := int(rest[0].Limit); limit > 0 {
				need = max(0, len(ahead)-limit+1)
			}
		}
		gate := &node{lock: lock.Name}
		gate.wait(need, ahead...)
		l.nodes = append(l.nodes, gate)
		ahead = nil
		for i, p := range rest[:n] {
			w := l.party(row, p, waits)
			if w.apart = len(rest)-i <= len(outside); w.apart {
				w.gone = l.unseen(w)
			}
			w.wait(1, gate)
			ahead = append(ahead, w)
		}
		rest, need = rest[n:], n
	}
}

// together reports whether two parties are granted a lock at the same time, if there is room.
func together(a, b catalog.Participant) bool {
	return a.Mode == b.Mode && a.Limit == b.Limit && a.Mode != catalog.Exclusive
}

func (l *lines) party(row catalog.Snapshot, p catalog.Participant, k kind) *node {
	n := &node{party: p, lock: row.Lock.Name, kind: k}
	l.stood[n.standing()] = true
	n.gone = silent(row, p) || l.unseen(n)
	l.nodes = append(l.nodes, n)
	if k == waits {
		l.waiters[p.TS] = n
	}
	return n
}

func (n *node) standing() standing { return standing{n.lock, n.party.TS, n.kind} }

// unseen reports whether an earlier reading did not show a party.
func (l *lines) unseen(n *node) bool { return l.before != nil && !l.before.stood[n.standing()] }

// silentAfter is how many ping intervals a process may miss before it may be dead.
const silentAfter = 2

// silent reports whether the process of a party may be dead: then the takeover rule ends its
// waiting and holding, and nobody needs to give up for that.
func silent(row catalog.Snapshot, p catalog.Participant) bool {
	ping := row.Pings[p.Process].Ping
	if ping == nil || ping.Condemned != nil {
		return true
	}
	return ping.Interval > 0 && !row.ServerTime.IsZero() &&
		row.ServerTime.Sub(ping.At) > silentAfter*ping.Interval
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

// solve finds out who goes on: all are taken for stuck, then whoever waits for nobody that is stuck
// is not, until nothing changes. Whoever is still stuck then is so whatever the others do. Linear.
func (l *lines) solve(givenUp map[*node]bool) {
	var next []*node
	for _, n := range l.nodes {
		n.missing, n.goes = n.need, false
		if n.gone || givenUp[n] || n.need == 0 {
			next = append(next, n)
		}
	}
	for len(next) > 0 {
		n := next[0]
		next = next[1:]
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

// circle returns the circle that a waiter has to break, in words; nil when it has none to break. Of
// those who are stuck and wait for one another and for nobody else it is the youngest who has, so
// that exactly one is told. If the others are stuck without it as well, they have a circle of their
// own, and that is broken first: it may be all there is.
func (l *lines) circle(ts bson.ObjectID) []string {
	me := l.waiters[ts]
	for givenUp := map[*node]bool{}; me != nil; {
		l.solve(givenUp)
		if me.goes {
			return nil
		}
		ring, from := reach(me, func(n *node) []*node { return n.waitsFor })
		_, backwards := reach(me, func(n *node) []*node { return n.behind })
		for _, n := range ring {
			if _, ok := backwards[n]; !ok {
				return nil // it waits for a circle of others
			}
		}
		youngest := youngestOf(ring)
		if youngest == nil {
			return nil
		}
		chain := words(me, ring, from)
		givenUp[youngest] = true
		l.solve(givenUp)
		stuck := func(n *node) bool { return !n.goes }
		if !slices.ContainsFunc(ring, stuck) {
			if youngest != me {
				return nil
			}
			return chain
		}
	}
	return nil
}

// reach returns the stuck ones to which steps lead from a stuck one, nearest first, and from where
// each was reached.
func reach(start *node, steps func(*node) []*node) (all []*node, from map[*node]*node) {
	all, from = []*node{start}, map[*node]*node{start: nil}
	for i := 0; i < len(all); i++ {
		for _, n := range steps(all[i]) {
			if _, known := from[n]; !known && !n.goes {
				from[n] = all[i]
				all = append(all, n)
			}
		}
	}
	return all, from
}

// youngestOf returns the waiter that came last of those who hold something: there is one in every
// circle, for whoever stands behind another in line came later. Those outside count as later than all others.
func youngestOf(ring []*node) *node {
	var youngest *node
	for _, n := range ring {
		if n.kind == waits && len(n.party.Holds) > 0 && (youngest == nil || older(youngest, n)) {
			youngest = n
		}
	}
	return youngest
}

// older reports whether a came before b.
func older(a, b *node) bool {
	switch since := b.party.Since; {
	case a.apart != b.apart:
		return b.apart
	case !a.party.Since.Equal(since):
		return a.party.Since.Before(since)
	}
	return slices.Compare(a.party.TS[:], b.party.TS[:]) < 0
}

// words are the shortest way from a waiter back to itself, a step for each waiter on it.
func words(me *node, ring []*node, from map[*node]*node) []string {
	way := []*node{me}
	last := slices.IndexFunc(ring, func(n *node) bool { return slices.Contains(n.waitsFor, me) })
	for n := ring[last]; n != nil; n = from[n] {
		way = append(way, n)
	}
	slices.Reverse(way)
	var chain []string
	for i, n := range way {
		if n.kind == waits && i+2 < len(way) {
			chain = append(chain, n.waitsForText(way[i+2])) // the one between is a junction
		}
	}
	return chain
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
