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
		rows = append(rows, catalog.Snapshot{Lock: &doc, ServerTime: now, Pings: map[string]catalog.PingState{
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
// is told; and when those who are told give up, one after the other, everybody else has his turn.
// Whoever is told had to give up: with some of the others out of the way it is stuck still, and its
// giving up ends all of it. So it is where some wait outside of the documents, too.
func TestDeadlock_RandomGraphs_AgainstEveryOrderOfReleases(t *testing.T) {
	t.Parallel()
	deadlocks := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlay(t)
		for {
			stuck := p.stuck()
			told := p.told(rapid.IntRange(0, 8).Draw(t, "places in a line"))
			for _, ts := range told {
				if !slices.Contains(stuck, ts) {
					t.Fatalf("%d is told and could go on\n%v", ts, p)
				}
				if !p.needed(ts, stuck) {
					t.Fatalf("%d is told and need not give up\n%v", ts, p)
				}
			}
			if one := p.stuckGreedily(); !slices.Equal(one, stuck) {
				t.Fatalf("one order of releases leaves %v, all leave %v\n%v", one, stuck, p)
			}
			if len(stuck) == 0 {
				return
			}
			deadlocks++
			if len(told) == 0 {
				t.Fatalf("%v are stuck and nobody is told\n%v", stuck, p)
			}
			p.giveUp(told[rapid.IntRange(0, len(told)-1).Draw(t, "gives up first")])
		}
	})
	t.Logf("%d deadlocks", deadlocks)
	if deadlocks == 0 {
		t.Error("no graph had a deadlock")
	}
}

// told are those who are told of a deadlock when a document has so many places for waiters, and the others,
// all of one process, wait outside: only that process knows of them.
func (p *play) told(places int) (told []int) {
	rows, outside := p.rows(), map[string][]catalog.Participant{}
	for _, row := range rows {
		if line := row.Lock.Waiters; len(line) > places {
			row.Lock.Waiters, outside[row.Lock.Name] = line[:places], line[places:]
		}
	}
	ask := func(ts bson.ObjectID, outside map[string][]catalog.Participant) {
		if waitqueue.DeadlockIn(rows, outside, ts) != nil {
			told = append(told, int(binary.BigEndian.Uint32(ts[8:])))
		}
	}
	for _, row := range rows {
		for _, w := range row.Lock.Waiters {
			ask(w.TS, nil)
		}
		for _, w := range outside[row.Lock.Name] {
			ask(w.TS, outside)
		}
	}
	return told
}

// giveUp takes a waiter out of its line. Its caller goes on, and releases what it holds.
func (p *play) giveUp(ts int) { p.leave(ts) }

// needed reports whether there is a set of others after whose giving up ts is stuck still, and
// after its own nobody is.
func (p *play) needed(ts int, stuck []int) bool {
	others := slices.DeleteFunc(slices.Clone(stuck), func(other int) bool { return other == ts })
	for set := range 1 << len(others) {
		q := p.clone()
		for i, other := range others {
			if set>>i&1 == 1 {
				q.giveUp(other)
			}
		}
		if !slices.Contains(q.stuckGreedily(), ts) {
			continue
		}
		q.giveUp(ts)
		if len(q.stuckGreedily()) == 0 {
			return true
		}
	}
	return false
}

// stuckGreedily is stuck by one order of releases only.
func (p *play) stuckGreedily() []int {
	q := p.clone()
	for free := q.free(); len(free) > 0; free = q.free() {
		q.leave(free[0])
	}
	return q.waiting()
}
