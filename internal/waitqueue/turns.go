package waitqueue

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// This file is how long a turn of a lock takes. Where grants are asked for, sixteen processes in
// one line would all ask as often as the first of it, and what they ask would slow its hand-over
// down: so a waiter behind others asks less while its turn is not to be expected.

// The pause between two questions is this part of the time until the waiter is expected to be the
// first of its line. Each question tells how many stand before it, so that it is noticed by the way
// that turns are shorter or longer than those before. For the first it is this part of the time
// until its turn, and at most that part of the time in which nothing has moved, since no question
// tells that its turn comes sooner.
//
// Once its turn is to be expected, the pause is at most that part of what one takes, or of the time
// for which this one is late: a lock that many wait for stands free for a small part of a turn, and
// not of the long time that they have waited for it.
const (
	approach   = 3
	unexpected = 8
	whenDue    = 8

	// longer is how many times as long as the last turn one counts at most: who waits then asks for a
	// while as if turns were short. quicker is how many times as quick the turns before a waiter's own
	// must have been, since it entered, that they count in place of those before.
	longer  = 2
	quicker = 4
)

// mostLines bounds of how many locks a question tells the line.
const mostLines = 16

// expected is a turn: how long it is until then, less than 0 when it is late, and how long one
// takes, 0 when that is not known.
type expected struct{ left, turn time.Duration }

// moving are the locks of which a question asks for the line: those whose turns are short beside
// PollMax and not late by more than it, the soonest mostLines of them.
func (q *Queue) moving(by map[string][]*Waiter, now time.Duration) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := map[string]time.Duration{}
	for name, ws := range by {
		turn, soonest := q.turns[name], forEver
		if turn == 0 || turn > approach*q.PollMax {
			continue
		}
		for _, w := range ws {
			if l := w.left(turn, now); w.place > 0 && l > -q.PollMax {
				soonest = min(soonest, l)
			}
		}
		if soonest < forEver {
			left[name] = soonest
		}
	}
	sooner := func(a, b string) int { return cmp.Compare(left[a], left[b]) }
	lines := slices.SortedFunc(maps.Keys(left), sooner)
	return lines[:min(len(lines), mostLines)]
}

// mostTurns bounds what is remembered of locks.
const mostTurns = 1000

// tookTurns learns from the grant of a waiter. A quicker turn counts at once, a longer one by and
// by: after one turn of minutes the next may be as quick as those before it. The caller holds mu.
func (q *Queue) tookTurns(w *Waiter, now time.Duration) {
	if !w.stands {
		return
	}
	name, turn := w.Name, (now-w.since)/time.Duration(w.behind+1)
	if last, known := q.turns[name]; known && turn > last {
		turn = min(last+(turn-last)/4, longer*last)
	}
	if len(q.turns) >= mostTurns {
		clear(q.turns)
	}
	q.turns[name] = turn
}

// left is how long it is until the turn of a waiter, if turns take as long as that; less than 0
// when it is late. When it has waited for twice as long as was to be expected when it entered, they
// do not: then it is late by all that it waits longer, wherever it stands.
func (w *Waiter) left(turn, now time.Duration) time.Duration {
	if late := now - w.since - time.Duration(w.behind+1)*turn; late > time.Duration(w.behind+1)*turn {
		return -late
	}
	if turns := w.behind - w.place; turns > 0 {
		if took := (w.seen - w.since) / time.Duration(turns); quicker*took < turn {
			turn = took
		}
	}
	return w.seen + time.Duration(w.place+1)*turn - now
}
