package waitqueue

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/contend"
	"mongodlm/pinger"
)

// Config is what a Queue is made of.
type Config struct {
	Store   Store
	Judge   *contend.Judge
	Process Process
	Clock   clock.Clock
	Log     zerolog.Logger

	Ping        time.Duration // between two pings
	Poll        time.Duration // the first pause between two questions for a lock
	PollMax     time.Duration // the longest
	MaxWatchGap time.Duration // between two looks that are one observation

	// Owns reports whether this process has acquired a session, nil that it has every one that is
	// asked for; Skew is by how much the server's clock is ahead, nil that it is not.
	Owns func(ts bson.ObjectID) bool
	Skew func() time.Duration

	// Closed is closed when nobody is to wait any more. Go starts a goroutine that ends soon after it.
	Closed <-chan struct{}
	Go     func(func())
}

// Store is what a Queue needs of a [catalog.Catalog].
type Store interface {
	Snapshots(ctx context.Context, names []string) (map[string]catalog.Snapshot, error)
	HeldOrFree(ctx context.Context, process string, names, lines []string) ([]catalog.Lock, error)
	Apply(ctx context.Context, t catalog.Transition) (catalog.Lock, []catalog.Grant, error)
	WaitedUnder(ctx context.Context, processes []string, held []bson.ObjectID) (
		map[string]catalog.Snapshot, error)
	ApplyPing(ctx context.Context, c catalog.PingChange) error
	List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error]
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
	lines   map[string][]*LocalLine   // one for each limit that is asked for
	inside  map[bson.ObjectID]*Waiter // known before the command is sent
	attends bool                      // the loop is at work
	moved   time.Duration             // monotonic time of the last progress
	had     map[string]aTurn          // the last turn of this process, by lock name
	swept   time.Duration             // monotonic time at which the old ones of had were forgotten
	rtt     time.Duration             // of a question, smoothed
	stream  *following                // of the loop that began last
	turns   map[string]time.Duration  // how long one took, by lock name
	wake    chan struct{}
	seeks   bool          // the search for deadlocks is at work
	rouse   chan struct{} // wakes it

	looks, questions, steps, lags, searches, notes, cuts *Episode // of failures, for the log
}

// New makes a queue in which nobody waits. It starts no goroutine.
func New(cfg Config) *Queue {
	if cfg.Skew == nil {
		cfg.Skew = func() time.Duration { return 0 }
	}
	failing := func(what string) *Episode { return &Episode{Log: cfg.Log, What: what} }
	return &Queue{
		Config: cfg, lines: map[string][]*LocalLine{}, inside: map[bson.ObjectID]*Waiter{},
		had: map[string]aTurn{}, turns: map[string]time.Duration{},
		wake: make(chan struct{}, 1), rouse: make(chan struct{}, 1),
		looks:     failing("look at the locks that are waited for"),
		questions: failing("question for grants"),
		steps:     failing("step for a line"),
		lags:      failing("hearing of grants in time by the stream"),
		searches:  failing("search for deadlocks"),
		notes:     failing("note of who waits outside of the lines"),
		cuts:      failing("note of all who wait outside of the lines"),
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
	if news || g.Process != q.Process.Process() { // granted to another by this process: news, too
		q.Opened(g.Name)
	}
}

// An aTurn is one turn that the process had: the fence of its guard, and when, monotonic.
type aTurn struct {
	fence int64
	at    time.Duration
}

// turnsKept is for how long it is known that a process had a turn.
const turnsKept = time.Hour

// HadTurn notes that a caller has a lock now by a place in its line, or from outside of it.
func (q *Queue) HadTurn(name string, fence int64) {
	now := q.Clock.Now().Mono
	q.mu.Lock()
	defer q.mu.Unlock()
	q.had[name] = aTurn{fence, now}
	if now-q.swept < q.Ping {
		return
	}
	q.swept = now
	maps.DeleteFunc(q.had, func(_ string, t aTurn) bool { return now-t.at > turnsKept })
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

// all are those of this process who wait: sessions in a line, and places outside. The caller holds
// mu.
func (q *Queue) all() (all []*Waiter) {
	for _, w := range q.inside {
		if w.stands {
			all = append(all, w)
		}
	}
	for _, lines := range q.lines {
		for _, l := range lines {
			all = append(all, l.places...)
		}
	}
	return all
}

// Listens reports whether somebody waits, or did a ping interval ago, and whether grants come by a
// change stream that tells in time, or are asked for.
func (q *Queue) Listens() (attends, streaming bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.attends, q.stream != nil && q.stream.worth.trusted
}

// Oldest returns for how long the one has waited that has waited for the longest, since it came or
// entered its line anew; zero when nobody waits but those who stand by.
func (q *Queue) Oldest() time.Duration {
	now := q.Clock.Now().Mono
	oldest := time.Duration(0)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.all() {
		if w.manner != Standby {
			oldest = max(oldest, now-w.since)
		}
	}
	return oldest
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
