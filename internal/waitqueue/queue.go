package waitqueue

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

	looks, questions, steps, lags *Episode // of failures, for the log
}

// New makes a queue in which nobody waits. It starts no goroutine.
func New(cfg Config) *Queue {
	failing := func(what string) *Episode { return &Episode{Log: cfg.Log, What: what} }
	return &Queue{
		Config: cfg, lines: map[string][]*LocalLine{}, inside: map[bson.ObjectID]*Waiter{},
		had: map[string]aTurn{}, turns: map[string]time.Duration{},
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

// A Manner is how one waits.
type Manner int

// The manners. A waiter that stands by wants the lock only when its holder is gone, and does not
// count in Oldest.
const (
	InLine Manner = iota
	Standby
)

// A Waiter is who waits for a lock. A call of Lock is two of them, one after the other: a place in
// a line of its process (Join, Turn, Leave), and a session that stands in the line of the document
// (Enter, Stands, Granted, Leave).
type Waiter struct {
	Name   string
	manner Manner
	party  catalog.Participant // as in the document; the session of a place is only known here

	// Granted has room for one: a session is granted once. So has Fate, which a session alone has:
	// why it must not wait any longer.
	Granted chan catalog.Grant
	Fate    chan Fate
	// Turn is closed when a place is the first of its Line; a session has neither.
	Turn chan struct{}
	Line *LocalLine
	// LastTurn is the fence of the last turn that a waiting call of the process had of the lock before
	// this session: not of a try, nor of a call that had it at once by barging. 0 when it had none, or
	// it was forgotten: with the first turn that the process has of any lock when that is turnsKept
	// ago.
	LastTurn int64
	atMost   time.Duration // how long a session may wait, 0 where nothing bounds that

	told   bool // of its grant; the queue's mu guards it, and stands
	stands bool // it stands in the line of the document: the loop looks after it

	// Set before a session stands, and when a place is taken.
	since  time.Duration // monotonic time of that
	behind int           // how many turns were before its own then
	half   time.Duration // its lock is looked at after this at the latest, see Stands

	// Scene is the latest picture of the lock, nil before there is one. From when a session stands the
	// loop alone writes it, and has the fields below.
	Scene  atomic.Pointer[contend.Scene]
	looked bool          // there is a picture of a look
	place  int           // how many turns are before its own, by what was read last
	seen   time.Duration // since when it is known to be so many, monotonic
}

// A Fate is why a waiter must not wait any longer: one of two.
type Fate struct {
	Err     error // with which a new call would be refused as well
	Removed bool  // its place is gone: it may enter again
}

// A LocalLine is those of a process who ask for one lock with one limit and have yet to enter its
// document. The first looks whether there is room, the others sleep. Those who ask for another
// limit stand in another line: they are not to wait for each other.
type LocalLine struct {
	Room chan struct{} // there may be room in the document now; for the first of the line
	Shut atomic.Bool   // there was no room at the last answer: look before the next entering

	limit  int32
	places []*Waiter
}

// Join takes the last place of a line. as is the caller: its mode and its limit.
func (q *Queue) Join(name string, as catalog.Participant, manner Manner) *Waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.lines[name], func(l *LocalLine) bool {
		return l.limit == as.Limit
	})
	if i < 0 {
		i = len(q.lines[name])
		q.lines[name] = append(q.lines[name],
			&LocalLine{limit: as.Limit, Room: make(chan struct{}, 1)})
	}
	l := q.lines[name][i]
	now := q.Clock.Now()
	w := &Waiter{
		Name: name, manner: manner, party: as, Line: l, since: now.Mono,
		Turn: make(chan struct{}),
	}
	l.places = append(l.places, w)
	if len(l.places) == 1 {
		close(w.Turn)
	}
	return w
}

// Leave ends a session, whatever became of it, or gives a place up; again it does nothing. If the
// place was the first, the next one has its turn.
func (q *Queue) Leave(w *Waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := w.Line
	if l == nil {
		delete(q.inside, w.party.TS)
		return
	}
	i := slices.Index(l.places, w)
	if i < 0 {
		return
	}
	l.places = slices.Delete(l.places, i, i+1)
	switch {
	case i == 0 && len(l.places) > 0:
		close(l.places[0].Turn)
	case len(l.places) == 0:
		others := slices.DeleteFunc(q.lines[w.Name], func(o *LocalLine) bool { return o == l })
		if q.lines[w.Name] = others; len(others) == 0 {
			delete(q.lines, w.Name)
		}
	}
}

// Opened says that somebody left a lock or its line: the first of each line enters.
func (q *Queue) Opened(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines[name] {
		l.Shut.Store(false)
		select {
		case l.Room <- struct{}{}:
		default: // told before
		}
	}
}

// Enter makes a session known before it is sent, so that a grant is never missed. It does not stand
// in a line yet.
func (q *Queue) Enter(r catalog.Request, manner Manner, atMost time.Duration) *Waiter {
	w := &Waiter{
		Name: r.Name, manner: manner, atMost: atMost,
		party:   catalog.Participant{TS: r.TS, Process: r.Process, Limit: r.Limit},
		Granted: make(chan catalog.Grant, 1), Fate: make(chan Fate, 1),
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	w.LastTurn = q.had[r.Name].fence
	q.inside[r.TS] = w
	return w
}

// Stands says that a session stands in its line now, as the lock document shows: from here on the
// loop looks after it. Where its time is short, and this process knows neither the turns of the
// lock nor who is in its way, the lock is looked at after half of that time: the process may live
// for no longer, as a job that cron starts.
func (q *Queue) Stands(w *Waiter, lock catalog.Lock) {
	now := q.Clock.Now().Mono
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moved = now
	w.stands, w.since, w.seen, w.half = true, now, now, forEver
	if w.atMost != 0 && q.turns[w.Name] == 0 && !q.Judge.Keeps(w.Name) {
		w.half = w.atMost / 2
	}
	w.standsIn(lock.Waiters, now)
	w.behind = w.place
	w.Scene.Store(contend.Pictured(lock))
	if !q.attends && !clock.Over(q.Closed) {
		q.attends = true
		q.Go(q.lookAfter) // ends when nobody waits, or with Closed
	}
	select {
	case q.wake <- struct{}{}: // look at the list again
	default: // it will
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

// Since returns the monotonic time at which it took its place.
func (w *Waiter) Since() time.Duration { return w.since }

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
