package queue

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// The pace of a lock is the time from one grant to the next. Where the loop polls, sixteen
// processes in one queue would all poll as often as the first waiter, and their polls would delay
// its grant: so a later waiter polls less until its grant is expected.
//
// The pause between two polls is at most 1/approach of the time until a waiter is expected to be
// first. Each poll returns its place, and so a pace that has changed. For the first waiter the
// pause is at most 1/approach of the time until its grant, and 1/unexpected of the time without
// progress, since no poll shows that its grant comes sooner.
//
// Once its grant is due, the pause is at most 1/whenDue of the pace, or of the delay if that is
// longer: a lock with a long queue is free for a small part of the pace, not for a small part of
// the long wait.
const (
	approach   = 3
	unexpected = 8
	whenDue    = 8
)

// The pace grows to at most maxGrowth times the last one: the waiter polls for a while as if grants
// followed quickly. The pace since a waiter was queued replaces the recorded one if it is
// minSpeedup times as quick.
const (
	maxGrowth  = 2
	minSpeedup = 4
)

// maxQueues bounds the queues that one poll reads.
const maxQueues = 16

// maxPaces bounds the locks with a recorded pace.
const maxPaces = 1000

// An expectation is the next grant that a waiter expects.
type expectation struct {
	left time.Duration // until the grant; negative if it is late
	pace time.Duration // 0 if unknown
}

// expecting returns the locks for a poll to read the queues of: a waiter expects its grant, the
// grant is not late by more than PollMax, and the pace is short compared with PollMax. It returns
// at most maxQueues locks, the soonest.
func (q *Queue) expecting(by map[string][]*Waiter, now time.Duration) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := map[string]time.Duration{}
	for name, ws := range by {
		pace, soonest := q.paces[name], forever
		if pace == 0 || pace > approach*q.PollMax {
			continue
		}
		for _, w := range ws {
			if l := w.timeLeft(pace, now); w.place > 0 && l > -q.PollMax {
				soonest = min(soonest, l)
			}
		}
		if soonest < forever {
			left[name] = soonest
		}
	}
	sooner := func(a, b string) int { return cmp.Compare(left[a], left[b]) }
	names := slices.SortedFunc(maps.Keys(left), sooner)
	return names[:min(len(names), maxQueues)]
}

// recordPace records the pace of a lock when a waiter gets its grant. A quicker pace replaces the
// last one, a slower one counts in part: after one hold of minutes the next may be as short as
// before. The caller holds mu.
func (q *Queue) recordPace(w *Waiter, now time.Duration) {
	if !w.queued {
		return
	}
	name, pace := w.Name, (now-w.since)/time.Duration(w.behind+1)
	if last, known := q.paces[name]; known && pace > last {
		pace = min(last+(pace-last)/4, maxGrowth*last)
	}
	if len(q.paces) >= maxPaces {
		clear(q.paces)
	}
	q.paces[name] = pace
}

// timeLeft returns the time until the grant of a waiter at a pace; negative if it is late. A waiter
// that has waited for more than twice the time that was expected when it was queued is late by the
// excess, at any place.
func (w *Waiter) timeLeft(pace, now time.Duration) time.Duration {
	expected := time.Duration(w.behind+1) * pace
	if late := now - w.since - expected; late > expected {
		return -late
	}
	if grants := w.behind - w.place; grants > 0 {
		if mean := (w.placeSince - w.since) / time.Duration(grants); minSpeedup*mean < pace {
			pace = mean
		}
	}
	return w.placeSince + time.Duration(w.place+1)*pace - now
}
