// Package queue waits for locks on behalf of a process. The sessions of the process's callers are
// queued in the lock documents. One loop serves all sessions. It receives their grants by one
// change stream, or polls for them. The loop also reads the holders, and the waiters ahead of the
// process's sessions. A [watch.Judge] evicts the dead processes among these holders and waiters.
package queue

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/watch"
	"mongodlm/pinger"
)

// Config configures a Queue. All fields are required.
type Config struct {
	Store  catalog.Catalog
	Judge  *watch.Judge
	Pinger *pinger.LockPinger
	Clock  clock.Clock
	Log    zerolog.Logger

	Ping        time.Duration // the ping interval
	Poll        time.Duration // the scale of the pauses between two polls
	PollMax     time.Duration // the longest pause
	MaxWatchGap time.Duration // longest time between two reads of one observation

	// Closed is closed when the process stops waiting. The function Go starts a goroutine, which ends
	// soon after Closed is closed.
	Closed <-chan struct{}
	Go     func(func())
}

// A Queue holds the waiters of one process. It is safe for concurrent use.
type Queue struct {
	Config

	mu       sync.Mutex                // guards the fields below
	waiters  map[bson.ObjectID]*Waiter // registered waiters, by session
	running  bool                      // the loop runs
	progress time.Duration             // monotonic time of the last grant or new waiter
	rtt      time.Duration             // smoothed round trip of a poll
	stream   *stream                   // stream of the latest loop
	paces    map[string]time.Duration  // by lock name
	wake     chan struct{}

	reads, polls, steps, lags *FailureLog
}

// New returns a Queue without waiters. It starts no goroutine.
func New(cfg Config) *Queue {
	failures := func(action string) *FailureLog { return &FailureLog{Log: cfg.Log, Action: action} }
	return &Queue{
		Config: cfg, waiters: map[bson.ObjectID]*Waiter{}, paces: map[string]time.Duration{},
		wake:  make(chan struct{}, 1),
		reads: failures("reading the locks with waiters"),
		polls: failures("polling for grants"),
		steps: failures("eviction or grant in a queue"),
		lags:  failures("timely delivery by the grant stream"),
	}
}

// Deliver sends grants to the waiters of this process. It drops a grant if its session is not
// registered. The call that made the session, or the reaper, then releases the lock.
func (q *Queue) Deliver(grants []catalog.Grant) {
	for _, g := range grants {
		q.deliver(g, nil)
	}
}

// deliver sends one grant to its waiter. The last argument is the stream that delivered the grant,
// or nil for another source.
func (q *Queue) deliver(g catalog.Grant, by *stream) {
	q.mu.Lock()
	w, now := q.waiters[g.TS], q.Clock.Now().Mono
	first := w != nil && !w.served && w.participant.Process == g.Process
	since := time.Duration(0)
	if first {
		w.served, q.progress, since = true, now, w.since
		q.recordPace(w, now)
	}
	changed, lag := false, error(nil)
	switch {
	case by != nil:
		changed, lag = by.quality.deliver(g.TS, first, since, now, q.bounds())
	case first && q.stream != nil && q.stream.quality.open:
		// The stream must deliver this grant too, unless the grant may be older than the stream.
		if s := &q.stream.quality; max(since, s.complete) >= s.opened {
			s.undelivered[g.TS] = polled{g.Name, now}
		}
	}
	q.mu.Unlock()
	if changed {
		q.recordTrust(by, lag)
	}
	if first {
		w.Granted <- g
	}
}

// recordTrust records that a stream lags, or, if lag is nil, that the stream is trusted again. It
// also wakes the loop.
func (q *Queue) recordTrust(s *stream, lag error) {
	q.lags.Record(context.Background(), lag)
	s.signal()
}

// queued returns the waiters that are queued and have no grant, by lock name. It also returns the
// sorted lock names.
func (q *Queue) queued() (map[string][]*Waiter, []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	by := map[string][]*Waiter{}
	for _, w := range q.waiters {
		if w.waits() {
			by[w.Name] = append(by[w.Name], w)
		}
	}
	return by, slices.Sorted(maps.Keys(by))
}

func (w *Waiter) waits() bool { return w.queued && !w.served }

// Status reports whether the loop runs, and whether a change stream delivers grants in time. The
// loop runs while a session is queued, and for one ping interval afterwards.
func (q *Queue) Status() (running, streaming bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running, q.stream != nil && q.stream.quality.trusted
}

// A Waiter is a session of this process that is queued in a lock document, or about to be queued.
type Waiter struct {
	Name        string
	participant catalog.Participant // as in the document

	// Granted receives at most one grant. Ended receives at most one reason to stop waiting.
	Granted chan catalog.Grant
	Ended   chan End

	served bool // its grant was sent; guarded by the queue's mu, as is queued
	queued bool // the lock document contains its entry

	// MarkQueued sets the fields below.
	since     time.Duration // monotonic time
	behind    int           // number of grants before its own
	readAfter time.Duration // longest time until the first read of its lock

	// View is the last snapshot of the lock, or nil before the first one. After MarkQueued only the
	// loop writes View and the fields below.
	View       atomic.Pointer[watch.View]
	read       bool          // the view has pings
	place      int           // number of grants before its own, by the last read or poll
	placeSince time.Duration // monotonic time of the first read or poll with this place
}

// An End is the reason why a waiter must stop waiting. One field is set.
type End struct {
	Err     error // a new call would fail with the same error
	Removed bool  // the entry was removed: the session may be queued again
}

// Unregister removes the waiter of a session. It may be called repeatedly.
func (q *Queue) Unregister(w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiters, w.participant.TS)
}

// Register adds a waiter for a session. Call Register before the session is sent to the store, so
// that no grant is missed.
func (q *Queue) Register(r catalog.Request) *Waiter {
	w := &Waiter{
		Name: r.Name, participant: catalog.Participant{TS: r.TS, Process: r.Process, Limit: r.Limit},
		Granted: make(chan catalog.Grant, 1), Ended: make(chan End, 1),
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters[r.TS] = w
	return w
}

// MarkQueued records that a session is queued, as the lock document shows. From then on the loop
// watches the lock. The argument left is the time for which the callers still wait, or 0 if they
// wait without a limit.
//
// With a limit, the process may be a cron job that ends soon. So the loop reads the lock after half
// of that time, unless this process already knows the pace of the lock or watches the lock.
func (q *Queue) MarkQueued(w *Waiter, lock catalog.Lock, left time.Duration) {
	now := q.Clock.Now().Mono
	q.mu.Lock()
	defer q.mu.Unlock()
	q.progress = now
	w.queued, w.since, w.placeSince, w.readAfter = true, now, now, forever
	if left != 0 && q.paces[w.Name] == 0 && !q.Judge.Watches(w.Name) {
		w.readAfter = left / 2
	}
	w.setPlace(lock.Waiters, now)
	w.behind = w.place
	w.View.Store(watch.ViewOf(lock))
	if !q.running && !clock.Over(q.Closed) {
		q.running = true
		q.Go(q.run) // ends when no session is queued, or with Closed
	}
	select {
	case q.wake <- struct{}{}:
	default: // the loop has yet to handle the last signal
	}
}

// setPlace sets the place of the waiter, which is the number of grants before its own. Consecutive
// shared waiters count as one. If the waiter is not in the queue, its place is unchanged.
func (w *Waiter) setPlace(queue []catalog.Participant, now time.Duration) {
	place := -1
	for i, p := range queue {
		if i == 0 || p.Mode != catalog.Shared || queue[i-1].Mode != catalog.Shared {
			place++
		}
		if p.TS == w.participant.TS {
			if place != w.place {
				w.place, w.placeSince = place, now
			}
			return
		}
	}
}

// end sends the reason to stop to each waiter. A waiter that already has a reason keeps it.
func end(ws []*Waiter, reason End) {
	for _, w := range ws {
		select {
		case w.Ended <- reason:
		default:
		}
	}
}

// A FailureLog logs the first of several failures of one action, and the next success.
type FailureLog struct {
	Log    zerolog.Logger
	Action string

	mu       sync.Mutex // guards failures
	failures int        // in a row
}

// Failing reports whether the last attempt failed.
func (f *FailureLog) Failing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failures > 0
}

// Record records one attempt. A nil err means success, or an error that is reported elsewhere. If
// ctx has ended, Record ignores the attempt.
func (f *FailureLog) Record(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	before := f.failures
	if f.failures++; err == nil {
		f.failures = 0
	}
	now := f.failures
	f.mu.Unlock()
	switch {
	case before == 0 && now > 0:
		f.Log.Warn().Err(err).Msg(f.Action + " failed")
	case before > 0 && now == 0:
		f.Log.Info().Int("failures", before).Msg(f.Action + " succeeds again")
	}
}

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
// soonest grants, at most maxQueues. A lock is omitted if its pace is unknown or longer than
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
