package queue

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/clock"
	"mongodlm/internal/watch"
)

// A loop serves all waiters of a process. A process has at most one loop. The loop runs while a
// session is queued, and for one ping interval afterwards. The number of commands does not depend
// on the number of waiters. Progress means a grant or a new waiter.
//
//   - If the server has change streams, a stream delivers the grants. While the stream delivers in
//     time (see the type quality), the loop polls only to test the stream. The pause between two
//     polls is PollMax, or a quarter of the time without progress if that is longer.
//   - Otherwise the loop polls: one command reads the grants. The pause is a small part of the time
//     without progress, and a smaller part if a waiter is near the front of its queue. Once a grant
//     is due, the pause is a small part of the pace, see approach. Every pause is at most PollMax,
//     and at least two round trips. For the first waiter in a queue it is at least one round trip.
//   - Once per ping interval one command reads the locks with the pings of holders and waiters. The
//     read starts or continues the watch of silent processes, and finds grants that were not
//     delivered. For a new waiter the read comes after a sixth of the interval, or after half of a
//     short waiting time, see MarkQueued.
type loop struct {
	q *Queue

	// interval is the time between two reads. It is at most half of MaxWatchGap, so that a late read
	// does not restart a watch. patience is the time after which the lock of a new waiter is read.
	// Most waits are shorter than patience, and cost no read.
	interval, patience time.Duration

	lastPoll  time.Duration // monotonic
	lastRead  time.Duration // monotonic
	nextRead  time.Duration // monotonic
	idleSince time.Duration // monotonic time since which no session is queued; -1 while one is queued
	pollNow   bool          // the stream opened, broke or lags
	stream    *stream
	timer     clock.Timer // timer of sleep; nil before the first sleep
}

// Constants of the pause between two polls. See loop.
const (
	roundTrips   = 2
	nearFront    = 64 // the pause is this part of the time without progress
	farFromFront = 16 // the same, for waiters with at least nearPlaces grants before them
	nearPlaces   = 16
	besideStream = 4   // the same, with a stream that delivers in time; at least PollMax
	pollsInPoll  = 100 // the shortest pause is this part of Poll

	forever = time.Duration(math.MaxInt64)
)

func (q *Queue) run() {
	ctx, cancel := clock.Until(q.Closed)
	defer cancel()
	now, interval := q.Clock.Now().Mono, min(q.Ping, q.MaxWatchGap/2)
	l := &loop{
		q: q, stream: openStream(q), interval: interval, patience: max(q.Poll, interval/6),
		lastPoll: now, lastRead: now, nextRead: now + interval, idleSince: -1,
	}
	defer l.stream.close()
	for !clock.Over(q.Closed) {
		by, names := q.queued()
		pause, read := l.next(by)
		switch {
		case len(names) == 0:
			if l.stopIdle() {
				return
			}
			pause = max(l.idleSince+q.Ping-q.Clock.Now().Mono, time.Millisecond)
		case pause <= 0 && read:
			l.readLocks(ctx, by, names)
			continue
		case pause <= 0:
			l.poll(ctx, by, names)
			continue
		}
		l.sleep(pause)
	}
}

// stopIdle records that no session is queued. After a ping interval without a queued session it
// ends the loop and returns true.
func (l *loop) stopIdle() bool {
	now := l.q.Clock.Now().Mono
	if l.idleSince < 0 {
		l.idleSince = now
	}
	if now-l.idleSince < l.q.Ping {
		return false
	}
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	for _, w := range l.q.waiters {
		if w.waits() {
			return false
		}
	}
	l.q.running = false
	return true
}

func (l *loop) sleep(pause time.Duration) {
	if l.timer == nil {
		l.timer = l.q.Clock.NewTimer(pause)
	} else {
		l.timer.Reset(pause)
	}
	defer l.timer.Stop()
	select {
	case <-l.timer.C():
	case <-l.q.wake:
	case <-l.stream.changed:
		l.pollNow = true
	case <-l.q.Closed:
	}
}

// next returns the time until the next command. If the command is due, the time is zero or less. It
// also reports whether the command is a read of the locks, not a poll.
func (l *loop) next(by map[string][]*Waiter) (pause time.Duration, read bool) {
	now := l.q.Clock.Now().Mono
	readAt := l.nextRead
	if len(by) > 0 {
		l.idleSince = -1
	}
	near, first, soonest := false, forever, expectation{left: forever}
	l.q.mu.Lock()
	for name, ws := range by {
		pace := l.q.paces[name]
		for _, w := range ws {
			if !w.read {
				readAt = min(readAt, max(w.since, l.lastRead)+min(l.patience, w.readAfter))
			}
			left := w.timeLeft(pace, now)
			near = near || w.place < nearPlaces || pace > 0 && left < nearPlaces*pace
			first = min(first, w.since)
			if left < soonest.left {
				soonest = expectation{left, pace}
			}
		}
	}
	l.q.mu.Unlock()
	at := readAt
	if len(by) > 0 {
		at = min(at, l.nextPoll(near, first, soonest))
	}
	if l.pollNow {
		at = now
	}
	return at - now, now >= readAt
}

// nextPoll returns the time of the next poll, or of the next check of the stream. Its arguments
// are: whether a waiter is near the front of its queue, the time at which the earliest waiter was
// queued, and the soonest expected grant.
func (l *loop) nextPoll(near bool, first time.Duration, next expectation) time.Duration {
	now := l.q.Clock.Now().Mono
	l.q.mu.Lock()
	s := &l.stream.quality
	late, lag := s.overdue(now, l.q.bounds())
	trusted, complete, still, rtt := s.trusted, s.complete, now-l.q.progress, l.q.rtt
	l.q.mu.Unlock()
	if lag != nil {
		l.q.recordTrust(l.stream, lag)
	}
	if trusted {
		pause := l.q.Pinger.Jitter(max(l.q.PollMax, still/besideStream), 0.2)
		return min(late, max(l.lastPoll, complete, first)+pause)
	}
	pause := still / farFromFront
	if near {
		pause = still / nearFront
	}
	least, before := roundTrips*rtt, next.left-next.pace // before: the time until the waiter is first
	toward := before / approach
	if next.pace > 0 {
		pause = min(pause, max(next.pace, -next.left)/whenDue)
		if before <= 0 {
			least, toward = rtt, min(next.left/approach, still/unexpected)
		}
	}
	pause = l.q.Pinger.Jitter(min(max(pause, l.q.minPause(least)), l.q.PollMax), 0.2)
	return l.lastPoll + max(pause, min(toward, l.q.PollMax))
}

// minPause returns the shortest pause between two polls. The argument trips is a lower bound: the
// duration of one or two round trips.
func (q *Queue) minPause(trips time.Duration) time.Duration {
	return max(trips, q.Poll/pollsInPoll, time.Millisecond)
}

// poll sends one command. The command reads the named locks that are free or held by this process,
// and the queues whose waiters expect a grant soon.
func (l *loop) poll(ctx context.Context, by map[string][]*Waiter, names []string) {
	l.pollNow = false
	sent, process := l.q.Clock.Now().Mono, l.q.Pinger.Process()
	locks, err := l.q.Store.HeldOrFree(ctx, process, names, l.q.expecting(by, sent))
	l.lastPoll = l.q.Clock.Now().Mono
	if l.record(ctx, l.q.polls, err, slices.Collect(maps.Values(by))...); err != nil {
		return
	}
	for _, lock := range locks { // before setComplete: the first reply may be older than the stream
		l.q.Deliver(lock.GrantsOf(process))
		for _, w := range by[lock.Name] {
			w.setPlace(lock.Waiters, sent)
		}
	}
	l.setComplete(sent, l.lastPoll-sent)
	for _, lock := range locks {
		if !lock.Held {
			l.grantNext(ctx, by[lock.Name], lock.Name)
		}
	}
}

// setComplete records the reply to a read or a poll. The reply contains all grants that were made
// before the command was sent. The argument trip is the round trip of a poll, or zero for a read.
func (l *loop) setComplete(sent, trip time.Duration) {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	l.stream.quality.complete = max(l.stream.quality.complete, sent)
	switch {
	case l.q.rtt == 0:
		l.q.rtt = trip
	case trip > 0:
		l.q.rtt += (trip - l.q.rtt) / 4
	}
}

func (l *loop) grantNext(ctx context.Context, ws []*Waiter, name string) {
	_, grants, err := l.q.Store.Apply(ctx, transition.GrantNext{Name: name})
	l.recordStep(ctx, ws, err)
	l.q.Deliver(grants)
}

// recordStep records the outcome of an eviction or a grant. If another process has changed the
// lock, the outcome is not a failure.
func (l *loop) recordStep(ctx context.Context, ws []*Waiter, err error) {
	if errors.Is(err, catalog.ErrNoMatch) && !errors.Is(err, catalog.ErrUnknownOutcome) {
		err = nil
	}
	l.record(ctx, l.q.steps, err, ws)
}

// record records the outcome of a command. An error that lasts until an operator acts ends the wait
// of all waiters, because a new call would get the same error. Any other error is logged.
func (l *loop) record(ctx context.Context, log *FailureLog, err error, waiters ...[]*Waiter) {
	var denied *catalog.PrivilegeError
	if errors.As(err, &denied) || errors.Is(err, catalog.ErrMalformed) ||
		errors.Is(err, catalog.ErrPermitMismatch) {
		for _, ws := range waiters {
			end(ws, End{Err: err})
		}
		err = nil
	}
	log.Record(ctx, err)
}

func (l *loop) readLocks(ctx context.Context, by map[string][]*Waiter, names []string) {
	sent := l.q.Clock.Now() // R2 in docs/safety.md
	snapshots, err := l.q.Store.Snapshots(ctx, names)
	received := l.q.Clock.Now() // R1 in docs/safety.md
	l.lastRead = received.Mono
	l.nextRead = received.Mono + l.interval
	if l.record(ctx, l.q.reads, err, slices.Collect(maps.Values(by))...); err != nil {
		l.nextRead = received.Mono + l.q.Pinger.Jitter(min(l.q.PollMax, l.interval/2), 0.2)
		l.lastRead = l.nextRead // new waiters also wait for that read
		return
	}
	l.lastPoll = received.Mono
	views := make([]watch.View, 0, len(names))
	for _, name := range names {
		snapshot, ok := snapshots[name]
		if !ok { // an operator removed the document with its queue
			end(by[name], End{Removed: true})
			continue
		}
		views = append(views, l.q.Judge.Decide(name, snapshot, sent, received))
	}
	l.q.Judge.RecordSightings(ctx, views...)
	for _, v := range views {
		l.handle(ctx, by[v.Name], v)
	}
	l.setComplete(sent.Mono, 0)
}

// handle delivers the grants in a view, and evicts dead and silent processes ahead of the last
// waiter. A waiter receives an End if its entry was removed, or if it cannot acquire the lock.
func (l *loop) handle(ctx context.Context, ws []*Waiter, v watch.View) {
	if err := v.Malformed(); err != nil {
		end(ws, End{Err: err})
		return
	}
	last := l.update(ws, &v)
	if last > 0 {
		evicted, next := l.q.Judge.EvictSilent(ctx, v, last)
		if evicted > 0 || next > 0 {
			l.readWithin(next)
		}
	}
	if v.Free() && len(v.Lock.Waiters) > 0 {
		l.grantNext(ctx, ws, v.Name)
		return
	}
	if l.findDead(&v, last) {
		_, err := l.q.Judge.EvictDead(ctx, v, last)
		l.recordStep(ctx, ws, err)
	}
}

// update stores the view and the new place in each waiter, and delivers the grants. It returns the
// largest index of these waiters in v.Suspects, or -1 if v contains no waiter of ws.
func (l *loop) update(ws []*Waiter, v *watch.View) (last int) {
	last = -1
	var missing []*Waiter
	for i, w := range ws {
		ts, limit := w.participant.TS, w.participant.Limit
		at := slices.IndexFunc(v.Suspects, func(s watch.Suspect) bool { return s.TS == ts })
		if at < 0 {
			missing = append(missing, w)
			continue
		}
		w.read = true
		w.View.Store(v)
		w.setPlace(v.Lock.Waiters, l.lastRead)
		last = max(last, at)
		if other := v.OtherLimit(limit); other != nil && v.Suspects[at].Waits && !v.OthersSilent(limit) {
			end(ws[i:i+1], End{Err: other})
		}
	}
	l.q.Deliver(v.Lock.GrantsOf(l.q.Pinger.Process()))
	end(missing, End{Removed: true}) // the waiters queue again
	return last
}

// findDead reports whether a suspect ahead of the last waiter is dead. If another suspect may be
// dead soon, findDead brings the next read forward to that time.
func (l *loop) findDead(v *watch.View, last int) (dead bool) {
	for _, one := range v.Suspects[:max(last, 0)] {
		own := one.Process == l.q.Pinger.Process()
		_, leased := v.Lock.LeaseOf(one.TS) // a lease may expire although its process is alive
		switch {
		case one.Dead() && (one.Renewal != 0 || !own):
			dead = true
			l.readWithin(0)
		case !own || leased && !one.Waits:
			l.readWithin(one.Decision.Remaining)
		}
	}
	return dead
}

// readWithin brings the next read forward, so that it begins within the given time. A time below
// Poll counts as Poll, so that failures do not cause a storm of reads.
func (l *loop) readWithin(in time.Duration) {
	now := l.q.Clock.Now().Mono
	l.nextRead = min(l.nextRead, now+max(in, l.q.Poll))
}
