package claim

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

// arrivals is what a process knows of the rows that are ready by the change stream, so that it asks
// for rows when there are some, and of a hundred processes that hear of one row about one asks.
type arrivals struct {
	clock clock.Clock
	poll  time.Duration
	unit  time.Duration // of the pauses before a question
	news  chan struct{} // one element when who waits has to look at the rest again

	mu      sync.Mutex       // guards the rest
	open    bool             // a stream tells
	streams int              // how often that has changed
	events  int64            // that were told
	ready   map[string]int64 // what was told and not seen claimed since, by the event that told it
	missed  int64            // the last event that found no room there
	blocked bool             // rows that are ready may wait for another one of their key
	sure    bool             // ready has all rows that are ready: the last look saw no others

	turn   time.Duration // when this process asks for them, if no other has; by the monotonic clock
	spread time.Duration // within which its turn comes
	others bool          // there are processes that claim rows beside this one
	first  string        // the row that came when nothing was ready, while it is alone
	came   time.Duration // when it did

	lag    time.Duration            // from a question until the stream has told of what it claimed
	mine   []unheard                // own claims of which the stream has not told, by age
	asking int                      // questions without an answer
	heard  map[string]time.Duration // when rows were claimed meanwhile, by somebody

	rested time.Duration // when there was nothing to ask for
	polls  float64       // from then until it looks whatever it was told
	jitter float64       // of that

	asked time.Time // due then was nothing else at the last look, by the server's clock
	later laters
}

// An unheard is a row that was claimed by a question that was sent then.
type unheard struct {
	key  string
	sent time.Duration
}

// Bounds of what a process knows, and of its pauses.
const (
	mostKnown    = 1000
	leastSpread  = 4 * time.Millisecond   // beside others
	mostSpread   = 10                     // Polls
	spreadAtOnce = 20                     // parts of a Poll
	fewPolls     = 10                     // between two looks of a process that is told
	mostPolls    = 100                    // the same, when the looks find nothing
	turns        = 10                     // lags until the first of many processes has its turn
	leastLate    = 100 * time.Millisecond // a stream that tells sooner is in time whatever Poll is
)

func newArrivals(c clock.Clock, poll time.Duration) *arrivals {
	return &arrivals{clock: c, poll: poll, news: make(chan struct{}, 1), ready: map[string]int64{},
		heard: map[string]time.Duration{}, polls: fewPolls, unit: min(poll, time.Second),
		spread: min(poll, time.Second) / spreadAtOnce, later: laters{at: map[string]later{}}}
}

func (a *arrivals) now() time.Duration { return a.clock.Now().Mono }

// hear takes in what the stream tells.
func (a *arrivals) hear(event rows.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events++
	switch event.Kind {
	case rows.Opened:
		a.begin(true)
	case rows.Arrived:
		a.arrived(rows.Key(event.ID), event.Due)
	case rows.Taken:
		a.taken(rows.Key(event.ID))
	case rows.Freed:
		key := rows.Key(event.ID)
		if a.forget(key); a.blocked {
			a.arrived(key, time.Time{})
		}
	}
}

// forget says that a row is not ready any more.
func (a *arrivals) forget(key string) {
	delete(a.ready, key)
	a.later.drop(key)
}

// ended says that the stream tells no more.
func (a *arrivals) ended() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(false)
}

// begin forgets what was told, when a stream begins or has ended.
func (a *arrivals) begin(open bool) {
	a.open, a.streams = open, a.streams+1
	a.sure, a.turn, a.first, a.lag, a.mine = false, 0, "", 0, nil
	clear(a.ready)
	a.later.forget()
	signal(a.news)
}

// arrived takes in a row that is ready, or due later.
func (a *arrivals) arrived(key string, due time.Time) {
	quiet := a.quiet()
	if a.later.told(key, due, a.events) {
		if delete(a.ready, key); !a.later.first(key) {
			return
		}
		if quiet {
			a.draw()
		}
		signal(a.news)
		return
	}
	if len(a.ready) == mostKnown {
		a.missed, a.sure = a.events, false
		return
	}
	a.ready[key] = a.events
	a.first = ""
	if quiet {
		a.first, a.came = key, a.now()
		a.draw()
		signal(a.news)
	}
}

func (a *arrivals) taken(key string) {
	a.forget(key)
	if i := slices.IndexFunc(a.mine, func(one unheard) bool { return one.key == key }); i >= 0 {
		a.lags(a.now() - a.mine[i].sent)
		a.mine = a.mine[i+1:]
		return
	}
	a.heard[key] = a.now()
	a.judge()
}

// judge says of the rows that were claimed, and not by this process, that others claim rows.
func (a *arrivals) judge() {
	if a.asking > 0 {
		return
	}
	for key, at := range a.heard {
		a.others = true
		a.learn(key, at)
	}
	clear(a.heard)
}

// lags notes how late the stream tells.
func (a *arrivals) lags(lag time.Duration) {
	const weight = 4
	if a.lag > 0 {
		lag = a.lag + (lag-a.lag)/weight
	}
	if a.lag = max(lag, 1); a.lag > a.late() {
		signal(a.news)
	}
}

// late is how late a stream tells that is of no use: behind a mongos it may be ten seconds.
func (a *arrivals) late() time.Duration { return max(a.poll, leastLate) }

// told reports whether there is a stream that tells in time.
func (a *arrivals) told() bool { return a.open && a.lag <= a.late() && a.now() <= a.believed() }

// believed is until when the stream tells in time if it tells nothing else.
func (a *arrivals) believed() time.Duration {
	if len(a.mine) == 0 {
		return math.MaxInt64
	}
	return a.mine[0].sent + a.late()
}

// quiet reports whether nothing is ready, as far as is known.
func (a *arrivals) quiet() bool {
	return a.told() && a.sure && len(a.ready) == 0 && !a.later.overdue()
}

// draw draws the turn of this process. A row that is still not claimed after half of a unit is
// asked for within the other half.
func (a *arrivals) draw() {
	pause := upTo(a.clock, a.spread)
	if half := a.unit / 2; pause > half {
		pause = half + upTo(a.clock, half)
	}
	a.turn, a.later.planned = a.now()+pause, time.Time{}
}

// learn sets the spread by how long it took until a row was claimed that came alone. While a claim
// is under way, and not heard of, others ask for nothing: with rows claimed after about ten times
// as long, one question in ten is for nothing, however many processes there are.
func (a *arrivals) learn(key string, at time.Duration) {
	const lags, most = turns * 0.6, 4 // the times vary, and the average of their logarithms is small
	if key != a.first || a.lag == 0 {
		return
	}
	a.first = ""
	ratio := lags * float64(a.lag) / float64(max(at-a.came, 1))
	a.widen(math.Sqrt(math.Sqrt(min(max(ratio, 1./most), most))))
}

func (a *arrivals) widen(by float64) {
	least := time.Duration(0)
	if a.others {
		least = leastSpread
	}
	a.spread = min(max(time.Duration(float64(a.spread)*by), least), mostSpread*a.unit)
}

// A question is what was known when the server was asked for rows.
type question struct {
	streams int
	events  int64
	sent    time.Duration
	due     time.Time // of the rows that were asked for
	held    bool      // there were keys whose rows were left out
	short   bool      // and there are more than were left out, or were a moment ago
	vain    bool      // and some of which it is not known who holds them
}

func (a *arrivals) asks() question {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking++
	return question{streams: a.streams, events: a.events, sent: a.now()}
}

// answered says what a question has brought, and whether there was nothing else: what was told
// before it is not ready any more then, or no row of this queue, or, when keys were held, may wait
// for another row of its key.
func (a *arrivals) answered(q question, found []rows.Row, all bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	current := a.open && a.streams == q.streams
	for _, row := range found {
		key := rows.Key(row.ID)
		a.forget(key)
		a.learn(key, a.now())
		if at, heard := a.heard[key]; heard && current {
			a.lags(at - q.sent)
		} else if current && len(a.mine) < mostKnown {
			a.mine = append(a.mine, unheard{key, q.sent})
		}
		delete(a.heard, key)
	}
	a.asking--
	a.judge()
	if q.vain { // they may be free by now
		a.sure, all = false, false
	}
	if !all {
		return
	}
	a.blocked = q.held && (a.blocked || !a.sure || len(a.ready) > 0 || a.later.overdue())
	for key, event := range a.ready {
		if event <= q.events {
			delete(a.ready, key)
			if !q.held {
				a.later.doubt(a.poll)
			}
		}
	}
	a.later.passed(q)
	a.asked = q.due
	a.sure = current && a.missed <= q.events
	a.rest()
	if current && a.lag == 0 {
		a.lag = max(2*(a.now()-q.sent), 1) // until it is measured
	}
}

// rest puts the next look off.
func (a *arrivals) rest() { a.rested, a.jitter = a.now(), 0.8+0.4*clock.Chance(a.clock) }

// A reason is why a process asks for rows.
type reason int

const (
	working  reason = iota // it had rows just now, or could not ask
	hinted                 // it made rows ready itself, or knows of none
	told                   // it was told of rows
	looking                // it was not told of any for long
	unseeing               // it does not ask: it has to know what is due next
)

// learned sets the pauses by whether a question brought rows.
func (a *arrivals) learned(why reason, rows bool) {
	const wider, narrower, alone = 2, 13. / 14, 1. / 2
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case why == told && !rows:
		a.others = true
		a.widen(wider)
	case why == told && a.others:
		a.widen(narrower)
	case why == told:
		a.widen(alone)
	case why == looking && rows: // the stream does not tell of all
		a.polls, a.sure = fewPolls, false
	case why == looking && a.told():
		a.polls = min(2*a.polls, mostPolls)
	}
	if !rows {
		a.rest()
	}
}

// look returns when the process looks for rows whatever it was told. All processes together do so
// about as often as one alone.
func (a *arrivals) look() time.Duration {
	polls := 1.
	if a.told() {
		polls = a.polls
		if a.others && a.lag > 0 {
			processes := float64(a.spread) / float64(turns*a.lag)
			polls = max(polls, min(processes*fewPolls, mostPolls))
		}
	}
	return a.rested + time.Duration(a.jitter*polls*float64(a.poll))
}

// next returns when a process that waits is to ask, and why, or working when it is to think again.
func (a *arrivals) next() (in time.Duration, why reason) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, why := a.look(), looking
	if a.told() && a.believed() < at {
		at, why = a.believed()+1, working
	}
	if a.blind() && a.later.read < at {
		at, why = a.later.read, unseeing
	}
	if planned := a.plan(); (planned || a.told() && !a.quiet()) && a.turn < at {
		at, why = a.turn, told
		if len(a.ready) == 0 && !planned { // the stream has just begun
			why = hinted
		}
	}
	return at - a.now(), why
}

// nothing reports whether there is nothing to ask for.
func (a *arrivals) nothing() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.quiet()
}

// await waits until there may be rows, and says why it thinks so.
func (a *arrivals) await(ctx context.Context, hint <-chan struct{}) reason {
	a.mu.Lock()
	a.draw()
	a.mu.Unlock()
	for ctx.Err() == nil {
		in, why := a.next()
		if in <= 0 && why != working {
			return why
		}
		t := a.clock.NewTimer(in)
		select {
		case <-hint:
			t.Stop()
			return hinted
		case <-a.news:
		case <-t.C():
		case <-ctx.Done():
		}
		t.Stop()
	}
	return working
}
