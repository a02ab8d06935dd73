package queue

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// The pace of a lock is the time from one grant to the next. If all waiters polled as often as the
// first waiter in the queue, the polls would delay the grant of that waiter. So a later waiter
// polls less often until its grant is near.
//
// A later waiter pauses for up to a third (approach) of the time until it is expected to be first.
// Each poll returns the waiter's place, and so shows a change of the pace.
//
// The first waiter pauses for up to a third of the time until its expected grant. A poll cannot
// predict that this grant will come early. So the pause is also at most an eighth (unexpected) of
// the time without progress.
//
// Once a grant is due, the pause is at most an eighth (whenDue) of the pace. If the grant is late
// by more than the pace, the pause is at most an eighth of the delay.
const (
	approach   = 3
	unexpected = 8
	whenDue    = 8
)

// The recorded pace of a lock grows by at most the factor maxGrowth with each grant. So after a
// slow grant, waiters poll for a while as if grants still followed quickly. A waiter also measures
// the pace since it was queued. If the measured pace is more than minSpeedup times as quick as the
// recorded pace, the waiter uses the measured pace.
const (
	maxGrowth  = 2
	minSpeedup = 4
)

// maxQueues limits the queues that one poll reads.
const maxQueues = 16

// maxPaces limits the locks whose pace is recorded. At the limit all paces are dropped.
const maxPaces = 1000

type expectation struct {
	left time.Duration // time until the grant; negative if the grant is late
	pace time.Duration // 0 if unknown
}

// expecting returns the locks whose queues the next poll reads. These are the locks with the
// soonest grants, at most maxQueues. A lock is left out if its pace is unknown or longer than
// approach*PollMax. Two kinds of waiters do not count: the first waiter in a queue, and a waiter
// whose grant is late by PollMax.
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
// last one. A slower pace counts only in part, because the next hold may be short again. The caller
// holds mu.
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

// timeLeft returns the time until the grant of a waiter, at the given pace of the lock. The time is
// negative if the grant is late. If the waiter has waited for more than twice the expected time,
// timeLeft ignores its place.
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
