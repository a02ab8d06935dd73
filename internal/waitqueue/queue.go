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
	HeldOrFree(ctx context.Context, process string, names []string) ([]catalog.Grant, []string, error)
	Apply(ctx context.Context, t catalog.Transition) (catalog.Lock, []catalog.Grant, error)
	WaitedUnder(ctx context.Context, processes []string, held []bson.ObjectID) (map[string]catalog.Snapshot, error)
	PutNote(ctx context.Context, process string, n catalog.Note) error
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
	lines   map[string][]*localLine   // one for each limit that is asked for
	inside  map[bson.ObjectID]*Waiter // known before the command is sent
	attends bool                      // the loop is at work
	moved   time.Duration             // monotonic time of the last progress
	had     map[string]aTurn          // by lock name: the last turn of this process; nil before the first
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
	return &Queue{
		Config: cfg, lines: map[string][]*localLine{}, inside: map[bson.ObjectID]*Waiter{},
		turns:     map[string]time.Duration{},
		wake:      make(chan struct{}, 1),
		rouse:     make(chan struct{}, 1),
		looks:     &Episode{Log: cfg.Log, What: "look at the locks that are waited for"},
		questions: &Episode{Log: cfg.Log, What: "question for grants"},
		steps:     &Episode{Log: cfg.Log, What: "step for a line"},
		lags:      &Episode{Log: cfg.Log, What: "hearing of grants in time by the stream"},
		searches:  &Episode{Log: cfg.Log, What: "search for deadlocks"},
		notes:     &Episode{Log: cfg.Log, What: "note of who waits outside of the lines"},
		cuts:      &Episode{Log: cfg.Log, What: "note of all who wait outside of the lines"},
	}
}

// A Waiter is one session that stands in the line of a lock document, or is about to.
type Waiter struct {
	Request *catalog.Request
	// Granted has room for one: a session is granted once. So has Fate: why the session must not
	// stand in the line any longer.
	Granted chan catalog.Grant
	Fate    chan Fate

	told   bool     // of its grant; the queue's mu guards it
	search schedule // the search for deadlocks alone has it

	mu     sync.Mutex    // guards the fields below
	since  time.Duration // monotonic time of its entering
	stands bool          // it stands in its line: the loop looks after it
	behind int           // how many stood before it in the line when it entered
	place  int           // and at the last look
	seen   time.Duration // when that was, monotonic
	looked bool          // scene is the loop's
	scene  *contend.Scene
}

// A Fate is why a waiter must not stand in the line any longer: one of three.
type Fate struct {
	Err     error    // with which a new call would be refused as well
	Circle  []string // a deadlock, in words, that it has to break
	Removed bool     // its place is gone: it may enter again
}

// NewWaiter makes a waiter of a session that is about to enter a line. It does not stand there yet.
func NewWaiter(request *catalog.Request) *Waiter {
	return &Waiter{Request: request, Granted: make(chan catalog.Grant, 1), Fate: make(chan Fate, 1)}
}

// Scene returns the latest picture of the lock, nil before there is one.
func (w *Waiter) Scene() *contend.Scene {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.scene
}

// standing reports whether it stands in its line.
func (w *Waiter) standing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stands
}

// enteredAt is the monotonic time of its entering; zero before it is known to stand.
func (w *Waiter) enteredAt() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since
}

// tell ends the stay of a waiter in the line. What was told first counts.
func (w *Waiter) tell(f Fate) {
	select {
	case w.Fate <- f:
	default:
	}
}

// Enter makes a session known before it is sent, so that a grant is never missed.
func (q *Queue) Enter(w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inside[w.Request.TS] = w
}

// Exit ends a waiter, whatever became of it.
func (q *Queue) Exit(w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.inside, w.Request.TS)
}

// Stands says that a session stands in its line now, as the lock document shows: from here on the
// loop looks after it.
func (q *Queue) Stands(w *Waiter, lock catalog.Lock) {
	now := q.Clock.Now().Mono
	w.mu.Lock()
	w.stands, w.since, w.seen = true, now, now
	w.place = slices.IndexFunc(lock.Waiters, func(p catalog.Participant) bool { return p.TS == w.Request.TS })
	w.behind = max(w.place, 0)
	w.scene = contend.Pictured(lock)
	w.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moved = now
	if !q.attends && !q.closing() {
		q.attends = true
		q.Go(func() { newLoop(q).run() }) // ends when nobody waits, or with Closed
	}
	select {
	case q.wake <- struct{}{}: // look at the list again
	default: // it will
	}
	if len(w.Request.Holds) > 0 {
		q.seek()
	}
}

// Deliver tells the waiters of this process what was granted to them. A waiter that was granted a
// lock left its line. What was granted to a session that waits no longer is being given back by its
// caller, or is a ghost for the reaper.
func (q *Queue) Deliver(grants []catalog.Grant) { q.deliver(grants, nil) }

// deliver is Deliver; by is the stream that told of the grants, nil for other means.
func (q *Queue) deliver(grants []catalog.Grant, by *following) {
	if len(grants) == 0 {
		return
	}
	own := q.Process.Process()
	for _, g := range grants {
		q.mu.Lock()
		w, now := q.inside[g.TS], q.Clock.Now().Mono
		news := w != nil && !w.told && w.Request.Process == g.Process
		since := time.Duration(0)
		if news {
			w.told, q.moved, since = true, now, w.enteredAt()
			q.tookTurns(w, now)
		}
		changed, lag := false, error(nil)
		switch {
		case by != nil:
			changed, lag = by.worth.tell(g.TS, news, since, now, q.bounds())
		case news && q.stream != nil:
			q.stream.worth.find(g, since, now)
		}
		q.mu.Unlock()
		if changed {
			q.thinks(by, lag)
		}
		if news {
			w.Granted <- g
		}
		if news || g.Process != own { // a step of this process granted it to another: that is news, too
			q.Opened(g.Name)
		}
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
	if q.had == nil {
		q.had = map[string]aTurn{}
	}
	q.had[name] = aTurn{fence, now}
	if now-q.swept < q.Ping {
		return
	}
	q.swept = now
	maps.DeleteFunc(q.had, func(_ string, t aTurn) bool { return now-t.at > turnsKept })
}

// LastTurn returns the fence of the last turn that a waiting call of the process had of a lock: not
// of a try, nor of a call that had it at once by barging. 0 when it had none, or it was forgotten:
// with the first turn that the process has of any lock when that is turnsKept ago.
func (q *Queue) LastTurn(name string) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.had[name].fence
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
		if w.standing() {
			by[w.Request.Name] = append(by[w.Request.Name], w)
		}
	}
	names := make([]string, 0, len(by))
	for name := range by {
		names = append(names, name)
	}
	slices.Sort(names)
	return by, names
}

// Listens reports whether somebody waits, or did a ping interval ago, and whether grants come by a
// change stream that tells in time, or are asked for.
func (q *Queue) Listens() (attends, streaming bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.attends, q.stream != nil && q.stream.worth.trusted
}

// Oldest returns for how long the one has waited that has waited for the longest, since it came or
// entered its line anew; zero when nobody waits.
func (q *Queue) Oldest() time.Duration {
	now := q.Clock.Now().Mono
	oldest := time.Duration(0)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lines := range q.lines {
		for _, l := range lines {
			oldest = max(oldest, now-l.places[0].Since)
		}
	}
	for _, w := range q.inside {
		w.mu.Lock()
		if w.stands {
			oldest = max(oldest, now-w.since)
		}
		w.mu.Unlock()
	}
	return oldest
}

// untilClosed returns a context that ends with Closed: commands under way are given up then.
func (q *Queue) untilClosed() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with ctx
		select {
		case <-q.Closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (q *Queue) closing() bool {
	select {
	case <-q.Closed:
		return true
	default:
		return false
	}
}
