package waitqueue_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"mongodlm/catalog"
	"mongodlm/internal/waitqueue"
)

// play is a second, simple writing of what locks do: it knows nothing of graphs, it lets callers
// release and grants what is free then. Names of sessions are numbers.
type play struct {
	locks map[string]*playLock
	holds map[int][]int // a waiting session -> what its caller holds meanwhile
}

type playLock struct {
	mode    catalog.Mode // of all who want more than one place; permits and readers do not meet
	limit   int
	holders []playParty
	line    []playParty
}

type playParty struct {
	ts   int
	mode catalog.Mode
}

func (p *play) clone() *play {
	c := &play{locks: map[string]*playLock{}, holds: maps.Clone(p.holds)}
	for name, l := range p.locks {
		copied := *l
		copied.holders, copied.line = slices.Clone(l.holders), slices.Clone(l.line)
		c.locks[name] = &copied
	}
	return c
}

// grant lets in who may go in, and says who does not wait any more.
func (p *play) grant() {
	for _, l := range p.locks {
		for len(l.line) > 0 && l.fits(l.line[0]) {
			delete(p.holds, l.line[0].ts)
			l.holders, l.line = append(l.holders, l.line[0]), l.line[1:]
		}
	}
}

func (l *playLock) fits(next playParty) bool {
	switch next.mode {
	case catalog.Permit:
		return len(l.holders) < l.limit
	case catalog.Shared:
		for _, h := range l.holders {
			if h.mode != catalog.Shared {
				return false
			}
		}
		return true
	}
	return len(l.holders) == 0
}

// leave takes a session out of wherever it is.
func (p *play) leave(ts int) {
	is := func(party playParty) bool { return party.ts == ts }
	for _, l := range p.locks {
		l.holders, l.line = slices.DeleteFunc(l.holders, is), slices.DeleteFunc(l.line, is)
	}
	delete(p.holds, ts)
	p.grant()
}

// free are the holders that may be released: no call that waits has them.
func (p *play) free() []int {
	kept := map[int]bool{}
	for _, holds := range p.holds {
		for _, ts := range holds {
			kept[ts] = true
		}
	}
	var free []int
	for _, name := range slices.Sorted(maps.Keys(p.locks)) {
		for _, h := range p.locks[name].holders {
			if !kept[h.ts] {
				free = append(free, h.ts)
			}
		}
	}
	return free
}

// waiting are the sessions in line.
func (p *play) waiting() []int { return slices.Sorted(maps.Keys(p.holds)) }

// stuck are those who are granted nothing in any order of releases. It tries them all.
func (p *play) stuck() []int {
	left := p.waiting()
	seen := map[string]bool{}
	var try func(p *play)
	try = func(p *play) {
		key := p.String()
		if seen[key] {
			return
		}
		seen[key] = true
		left = slices.DeleteFunc(left, func(ts int) bool { _, waits := p.holds[ts]; return !waits })
		for _, ts := range p.free() {
			next := p.clone()
			next.leave(ts)
			try(next)
		}
	}
	try(p.clone())
	return left
}

func (p *play) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.locks)) {
		l := p.locks[name]
		fmt.Fprintf(&b, "%s(%d) %v <- %v; ", name, l.limit, l.holders, l.line)
	}
	fmt.Fprintf(&b, "holds %v", p.holds)
	return b.String()
}

// rows are what a reading of it shows.
func (p *play) rows() []catalog.Snapshot {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var rows []catalog.Snapshot
	for _, name := range slices.Sorted(maps.Keys(p.locks)) {
		l := p.locks[name]
		party := func(of playParty) catalog.Participant {
			party := catalog.Participant{TS: session(of.ts), Process: "p", Mode: of.mode,
				Since: now.Add(time.Duration(of.ts) * time.Millisecond)}
			if of.mode == catalog.Permit {
				party.Limit = int32(l.limit)
			}
			for _, ts := range p.holds[of.ts] {
				party.Holds = append(party.Holds, session(ts))
			}
			return party
		}
		doc := catalog.Lock{Name: name, Held: len(l.holders) > 0}
		for _, h := range l.holders {
			doc.Sharers = append(doc.Sharers, party(h))
		}
		for _, w := range l.line {
			doc.Waiters = append(doc.Waiters, party(w))
		}
		rows = append(rows, catalog.Snapshot{Lock: &doc, ServerTime: now,
			Pings: map[string]catalog.PingState{
				"p": {Ping: &catalog.Ping{Process: "p", At: now, HasSeq: true, Interval: time.Second}}}})
	}
	return rows
}

func session(n int) bson.ObjectID {
	var id bson.ObjectID
	binary.BigEndian.PutUint32(id[8:], uint32(n))
	return id
}

// drawPlay lets callers acquire and release at random: each holds what it was granted, and waits
// for one or, with two goroutines under one guard, for two at a time.
func drawPlay(t *rapid.T) *play {
	p := &play{locks: map[string]*playLock{}, holds: map[int][]int{}}
	for i := range rapid.IntRange(1, 4).Draw(t, "locks") {
		l := &playLock{}
		if l.limit = rapid.IntRange(0, 3).Draw(t, "limit"); l.limit > 0 {
			l.mode = catalog.Permit
		}
		p.locks[string(rune('a'+i))] = l
	}
	owned := make([][]int, rapid.IntRange(2, 5).Draw(t, "callers"))
	for ts := 1; ts <= 16; ts++ {
		c := rapid.IntRange(0, len(owned)-1).Draw(t, "caller")
		var waits []int
		owned[c] = slices.DeleteFunc(owned[c], func(ts int) bool {
			if _, waiting := p.holds[ts]; waiting {
				waits = append(waits, ts)
			}
			return slices.Contains(waits, ts)
		})
		holds := slices.Clone(owned[c])
		owned[c] = append(owned[c], waits...)
		switch {
		case len(waits) == 0 && len(holds) > 0 && rapid.IntRange(0, 4).Draw(t, "release") == 0:
			p.leave(holds[0])
			owned[c] = slices.Delete(owned[c], 0, 1)
			continue
		case len(waits) > rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "goroutines"):
			continue
		}
		names := slices.Sorted(maps.Keys(p.locks))
		l := p.locks[rapid.SampledFrom(names).Draw(t, "lock")]
		mode := l.mode
		if mode == catalog.Exclusive && rapid.Bool().Draw(t, "shared") {
			mode = catalog.Shared
		}
		l.line, p.holds[ts] = append(l.line, playParty{ts, mode}), holds
		owned[c] = append(owned[c], ts)
		p.grant()
	}
	return p
}

// Nobody is accused who could go on in some order of releases; whenever anybody is stuck somebody
// is told; when all who are told give up everybody else has his turn, and so he has in whatever
// order they do. Each of them had to: if the others give up and he does not, he is stuck still. So
// it is where some wait outside of the documents, too. And whoever sees less, only what some of
// them wait for, says the same of those.
func TestDeadlock_RandomGraphs_AgainstEveryOrderOfReleases(t *testing.T) {
	t.Parallel()
	deadlocks, several := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlay(t)
		stuck, told := p.stuck(), p.told(rapid.IntRange(1, 8).Draw(t, "places in a line"), nil)
		if one := p.stuckGreedily(); !slices.Equal(one, stuck) {
			t.Fatalf("one order of releases leaves %v, all leave %v\n%v", one, stuck, p)
		}
		for _, ts := range told {
			if !slices.Contains(stuck, ts) {
				t.Fatalf("%d is told and could go on\n%v", ts, p)
			}
			if !slices.Contains(p.without(told, ts).stuckGreedily(), ts) {
				t.Fatalf("%d is told and need not give up, of %v\n%v", ts, told, p)
			}
		}
		if left := p.without(told, 0).stuckGreedily(); len(left) > 0 {
			t.Fatalf("%v give up, and %v are stuck still\n%v", told, left, p)
		}
		for _, ts := range stuck {
			seen := p.told(100, p.reachable(ts))
			for _, other := range p.told(100, nil) {
				if _, waits := p.reachableWaiters(ts)[other]; waits && !slices.Contains(seen, other) {
					t.Fatalf("%d is told, and not by who sees what %d waits for, %v\n%v", other, ts, seen, p)
				}
			}
		}
		if len(stuck) > 0 {
			deadlocks++
		}
		if len(told) > 1 {
			several++
		}
	})
	t.Logf("%d deadlocks, %d of them of several", deadlocks, several)
	if deadlocks == 0 || several == 0 {
		t.Error("no graph had a deadlock, or none had several")
	}
}

// without is the play after all of those have given up but one.
func (p *play) without(those []int, but int) *play {
	q := p.clone()
	for _, ts := range those {
		if ts != but {
			q.giveUp(ts)
		}
	}
	return q
}

// reachable are the locks to which one comes from what a waiter waits for by what their holders
// wait for.
func (p *play) reachable(ts int) map[string]bool {
	found := map[string]bool{}
	var visit func(ts int)
	visit = func(ts int) {
		for name, l := range p.locks {
			if found[name] || !slices.ContainsFunc(l.line, func(w playParty) bool { return w.ts == ts }) {
				continue
			}
			found[name] = true
			for _, h := range l.holders {
				for waiter, holds := range p.holds {
					if slices.Contains(holds, h.ts) {
						visit(waiter)
					}
				}
			}
		}
	}
	visit(ts)
	return found
}

// reachableWaiters are all that wait for one of those locks.
func (p *play) reachableWaiters(ts int) map[int]bool {
	found := map[int]bool{}
	for name := range p.reachable(ts) {
		for _, w := range p.locks[name].line {
			found[w.ts] = true
		}
	}
	return found
}

// told are those who are told of a deadlock when a document has so many places for waiters, and the
// others wait outside, and only some locks are seen, if not all.
func (p *play) told(places int, only map[string]bool) (told []int) {
	var rows []catalog.Snapshot
	outside := map[string][]catalog.Participant{}
	for _, row := range p.rows() {
		if only != nil && !only[row.Lock.Name] {
			continue
		}
		line, at := row.Lock.Waiters, places
		for i, w := range line {
			if w.Mode != line[len(line)-1].Mode { // the order of those outside is not told
				at = max(at, i+1)
			}
		}
		if len(line) > at {
			row.Lock.Waiters, outside[row.Lock.Name] = line[:at], line[at:]
		}
		rows = append(rows, row)
	}
	for ts, chain := range waitqueue.DeadlocksIn(rows, outside) {
		if len(chain) == 0 {
			panic("it is told nothing")
		}
		told = append(told, int(binary.BigEndian.Uint32(ts[8:])))
	}
	slices.Sort(told)
	return told
}

// giveUp takes a waiter out of its line. Its caller goes on, and releases what it holds.
func (p *play) giveUp(ts int) { p.leave(ts) }

// stuckGreedily is stuck by one order of releases only.
func (p *play) stuckGreedily() []int {
	q := p.clone()
	for free := q.free(); len(free) > 0; free = q.free() {
		q.leave(free[0])
	}
	return q.waiting()
}
