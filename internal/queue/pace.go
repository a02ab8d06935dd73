package queue

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// The pace of a lock is the time from one grant to the next. If the loop polls, sixteen processes
// in one queue would all poll as often as the first waiter, and their polls would delay its grant.
// So a later waiter polls less often until its grant is expected.
//
// For a later waiter the pause between two polls grows to 1/approach of the time until it is
// expected to be first. Each poll returns the waiter's place, so it also shows a change of the
// pace. For the first waiter the pause grows to 1/approach of the time until its grant, and at most
// to 1/unexpected of the time without progress, because no poll shows that its grant comes sooner.
//
// Once its grant is due, the pause is at most 1/whenDue of the pace or of the delay, whichever is
// longer. So a lock with a long queue is free for a small part of the pace, not of the long wait.
const (
	approach   = 3
	unexpected = 8
	whenDue    = 8
)

// The recorded pace grows to at most maxGrowth times the last one, so waiters poll for a while as
// if grants still followed quickly. A waiter uses the pace since it was queued instead if that is
// more than minSpeedup times as quick.
const (
	maxGrowth  = 2
	minSpeedup = 4
)

// maxQueues limits the queues that one poll reads.
const maxQueues = 16

// maxPaces limits the locks with a recorded pace.
const maxPaces = 1000

// An expectation is the next grant that a waiter expects.
type expectation struct {
	left time.Duration // time until the grant; negative if the grant is late
	pace time.Duration // 0 if unknown
}

// expecting returns the locks whose queues the next poll reads: at most maxQueues, those with the
// soonest grants. The pace of such a lock is at most approach times PollMax. One of its waiters,
// not the first, has a grant that is late by less than PollMax, or not late.
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
// last one. A slower pace counts only in part, because after a hold of minutes the next hold may be
// short again. The caller holds mu.
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

// timeLeft returns the time until the grant of a waiter at a pace. It is negative if the grant is
// late. A waiter that has waited for more than twice the expected time is late by the excess over
// that time, whatever its place.
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
