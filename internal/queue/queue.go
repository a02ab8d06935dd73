package queue

import (
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

// Config is what a Queue is made of.
type Config struct {
	Store   Store
	Judge   *watch.Judge
	Process Process
	Clock   clock.Clock
	Log     zerolog.Logger

	Ping        time.Duration // between two pings
	Poll        time.Duration // the first pause between two questions for a lock
	PollMax     time.Duration // the longest
	MaxWatchGap time.Duration // between two looks that are one observation

	// Closed is closed when nobody is to wait any more. Go starts a goroutine that ends soon after it.
	Closed <-chan struct{}
	Go     func(func())
}

// Store is what a Queue needs of a [catalog.Catalog].
type Store interface {
	Snapshots(ctx context.Context, names []string) (map[string]catalog.Snapshot, error)
	HeldOrFree(ctx context.Context, process string, names, lines []string) ([]catalog.Lock, error)
	Apply(ctx context.Context, t catalog.Transition) (catalog.Lock, []catalog.Grant, error)
	GrantStream(ctx context.Context, process string) (catalog.GrantStream, error)
}

// Process is what a Queue needs of the process that waits; a *pinger.LockPinger is one.
type Process interface {
	// Process returns the process id, Term the current term; nil when there is none.
	Process() string
	Term() *pinger.Term
	// Server returns what is known of the server.
	Server() catalog.Server
	// Jitter returns d, give or take the share of it.
	Jitter(d time.Duration, share float64) time.Duration
}

// A Queue is where the waiters of one process are. Safe for concurrent use.
type Queue struct {
	Config

	mu      sync.Mutex                // guards the fields below
	inside  map[bson.ObjectID]*Waiter // known before the command is sent
	attends bool                      // the loop is at work
	moved   time.Duration             // monotonic time of the last progress
	rtt     time.Duration             // of a question, smoothed
	stream  *following                // of the loop that began last
	turns   map[string]time.Duration  // how long one took, by lock name
	wake    chan struct{}

	looks, questions, steps, lags *Episode // of failures, for the log
}

// New makes a queue in which nobody waits. It starts no goroutine.
func New(cfg Config) *Queue {
	failing := func(what string) *Episode { return &Episode{Log: cfg.Log, What: what} }
	return &Queue{
		Config: cfg, inside: map[bson.ObjectID]*Waiter{}, turns: map[string]time.Duration{},
		wake:      make(chan struct{}, 1),
		looks:     failing("look at the locks that are waited for"),
		questions: failing("question for grants"),
		steps:     failing("step for a line"),
		lags:      failing("hearing of grants in time by the stream"),
	}
}

// Deliver tells the waiters of this process what was granted to them. A waiter that was granted a
// lock left its line. What was granted to a session that waits no longer is being given back by its
// caller, or is a ghost for the reaper.
func (q *Queue) Deliver(grants []catalog.Grant) {
	for _, g := range grants {
		q.deliver(g, nil)
	}
}

// deliver tells of one grant; by is the stream that told of it, nil for other means.
func (q *Queue) deliver(g catalog.Grant, by *following) {
	q.mu.Lock()
	w, now := q.inside[g.TS], q.Clock.Now().Mono
	news := w != nil && !w.told && w.party.Process == g.Process
	since := time.Duration(0)
	if news {
		w.told, q.moved, since = true, now, w.since
		q.tookTurns(w, now)
	}
	changed, lag := false, error(nil)
	switch {
	case by != nil:
		changed, lag = by.worth.tell(g.TS, news, since, now, q.bounds())
	case news && q.stream != nil && q.stream.worth.open:
		// What may have been granted before the stream was open proves nothing.
		if s := &q.stream.worth; max(since, s.heard) >= s.opened {
			s.untold[g.TS] = found{g.Name, now}
		}
	}
	q.mu.Unlock()
	if changed {
		q.thinks(by, lag)
	}
	if news {
		w.Granted <- g
	}
}

// thinks draws the consequences of what a stream has shown: that it lags, or that it tells in time
// again.
func (q *Queue) thinks(of *following, lag error) {
	q.lags.Note(context.Background(), lag)
	of.askAtOnce()
}

// waiters returns those who stand in line, by lock name, and the names.
func (q *Queue) waiters() (map[string][]*Waiter, []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	by := map[string][]*Waiter{}
	for _, w := range q.inside {
		if w.stands {
			by[w.Name] = append(by[w.Name], w)
		}
	}
	return by, slices.Sorted(maps.Keys(by))
}

// Listens reports whether somebody waits, or did a ping interval ago, and whether grants come by a
// change stream that tells in time, or are asked for.
func (q *Queue) Listens() (attends, streaming bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.attends, q.stream != nil && q.stream.worth.trusted
}

// A Waiter is a session of this process that is queued in a lock document.
type Waiter struct {
	Name  string
	party catalog.Participant // as in the document

	// Granted has room for one: a session is granted once. So has Fate: why the session must not wait
	// any longer.
	Granted chan catalog.Grant
	Fate    chan Fate

	told   bool // of its grant; the queue's mu guards it, and stands
	stands bool // it is queued in the document: the loop watches it

	// Set by Stands.
	since  time.Duration // monotonic time of that
	behind int           // how many turns were before its own then
	half   time.Duration // its lock is read after this at the latest

	// Scene is the latest snapshot of the lock, nil before there is one. From Stands on the loop alone
	// writes it, and has the fields below.
	Scene  atomic.Pointer[watch.Scene]
	looked bool          // there is a snapshot with pings
	place  int           // how many turns are before its own, by what was read last
	seen   time.Duration // since when it is known to be so many, monotonic
}

// A Fate is why a waiter must not wait any longer: one of two.
type Fate struct {
	Err     error // with which a new call would be refused as well
	Removed bool  // its place is gone: it may enter again
}

// Leave ends a session, whatever became of it; again it does nothing.
func (q *Queue) Leave(w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.inside, w.party.TS)
}

// Enter makes a session known before it is sent, so that no grant is missed. It is not queued yet.
func (q *Queue) Enter(r catalog.Request) *Waiter {
	w := &Waiter{
		Name: r.Name, party: catalog.Participant{TS: r.TS, Process: r.Process, Limit: r.Limit},
		Granted: make(chan catalog.Grant, 1), Fate: make(chan Fate, 1),
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inside[r.TS] = w
	return w
}

// Stands records that a session is queued, as the lock document shows: from here on the loop watches
// it. left is the time that the callers still have, 0 without a bound. If it is short, and this
// process knows neither the turns of the lock nor its holder, the lock is read after half of that
// time: the process may live for no longer, as a job that cron starts.
func (q *Queue) Stands(w *Waiter, lock catalog.Lock, left time.Duration) {
	now := q.Clock.Now().Mono
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moved = now
	w.stands, w.since, w.seen, w.half = true, now, now, forEver
	if left != 0 && q.turns[w.Name] == 0 && !q.Judge.Keeps(w.Name) {
		w.half = left / 2
	}
	w.standsIn(lock.Waiters, now)
	w.behind = w.place
	w.Scene.Store(watch.Pictured(lock))
	if !q.attends && !clock.Over(q.Closed) {
		q.attends = true
		q.Go(q.lookAfter) // ends when no session waits, or with Closed
	}
	select {
	case q.wake <- struct{}{}:
	default: // the loop has yet to handle the last signal
	}
}

// standsIn notes how many turns of others come before its own in a line, if it stands there.
// Readers that stand one behind the other have their turn together.
func (w *Waiter) standsIn(line []catalog.Participant, now time.Duration) {
	place := -1
	for i, p := range line {
		if i == 0 || p.Mode != catalog.Shared || line[i-1].Mode != catalog.Shared {
			place++
		}
		if p.TS == w.party.TS {
			if place != w.place {
				w.place, w.seen = place, now
			}
			return
		}
	}
}

// tell ends the stay of waiters in the line. What was told first counts.
func tell(ws []*Waiter, f Fate) {
	for _, w := range ws {
		select {
		case w.Fate <- f:
		default:
		}
	}
}

// An Episode is a time in which something fails that waiting may mend. However often it fails
// meanwhile, it is logged once when it begins and once when it ends.
type Episode struct {
	Log  zerolog.Logger
	What string

	mu       sync.Mutex // guards failures
	failures int        // 0: all is well
}

// Lasts reports whether the episode goes on.
func (e *Episode) Lasts() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failures > 0
}

// Note says how one command went: nil when it went well, or failed in a way that its caller is
// told. What its caller gave up says nothing.
func (e *Episode) Note(ctx context.Context, failure error) {
	if ctx.Err() != nil {
		return
	}
	e.mu.Lock()
	before := e.failures
	if e.failures++; failure == nil {
		e.failures = 0
	}
	now := e.failures
	e.mu.Unlock()
	switch {
	case before == 0 && now > 0:
		e.Log.Warn().Err(failure).Msg(e.What + " failed")
	case before > 0 && now == 0:
		e.Log.Info().Int("failures", before).Msg(e.What + " succeeds again")
	}
}
