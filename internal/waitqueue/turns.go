package waitqueue

import "time"

// This file is how long a turn of a lock takes. Where grants are asked for, sixteen processes in
// one line would all ask as often as the first of it, and what they ask would slow its hand-over
// down: so a waiter behind others asks less while its turn is not to be expected.

// The pause between two questions is this part of the time until the expected turn, and at most
// that part of the time in which nothing has moved, since a turn may be shorter than those before
// it.
//
// Once a turn is to be expected, the pause is at most that part of what one takes, or of the time
// for which this one is late: a lock that many wait for stands free for a small part of a turn, and
// not of the long time that they have waited for it.
const (
	approach   = 3
	unexpected = 8
	whenDue    = 8
)

// expected is a turn: how long it is until then, less than 0 when it is late, and how long one
// takes, 0 when that is not known.
type expected struct{ left, turn time.Duration }

// near reports whether it is to be expected within the turns of those who are near the front.
func (e expected) near() bool { return e.turn > 0 && e.left < nearPlaces*e.turn }

// eager is the pause between two questions, where it would be pause if nothing were expected.
func (e expected) eager(pause time.Duration) time.Duration {
	if e.turn == 0 {
		return pause
	}
	return min(pause, max(e.turn, -e.left)/whenDue)
}

// mostTurns bounds what is remembered of locks.
const mostTurns = 1000

// tookTurns learns from the grant of a waiter. A quicker turn counts at once. The caller holds mu.
func (q *Queue) tookTurns(w *Waiter, now time.Duration) {
	w.mu.Lock()
	stands, turn := w.stands, (now-w.since)/time.Duration(w.behind+1)
	w.mu.Unlock()
	if !stands {
		return
	}
	name := w.Name
	if last, known := q.turns[name]; known && turn > last {
		turn = last + (turn-last)/4
	}
	if len(q.turns) >= mostTurns {
		clear(q.turns)
	}
	q.turns[name] = turn
}

// turn is how long a turn of a lock took lately; 0 when it is not known.
func (q *Queue) turn(name string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.turns[name]
}

// left is how long it is until the turn of a waiter, if turns take as long as that, counted from
// its entering and from the last look; less than 0 when it is late. The caller holds the waiter's
// mu.
func (w *Waiter) left(turn, now time.Duration) time.Duration {
	return min(w.since+time.Duration(w.behind+1)*turn, w.seen+time.Duration(max(w.place, 0)+1)*turn) - now
}
