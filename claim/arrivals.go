package claim

import (
	"context"
	"sync"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/rows"
)

// arrivals stores the ready rows and the due times that a process knows.
//
// All processes receive the same events of the change stream. After an event about a ready row,
// each process waits for a random time. The maximum of this time is called the spread. Then the
// process claims the row, unless an event has reported a claim by another process. A claim that
// finds no row makes the spread four times as long. A claim that finds a row makes the spread a
// little shorter. As a result, about one claim in twenty finds no row, for any number of processes.
type arrivals struct {
	clock  clock.Clock
	server func() time.Time // nil: rows have no due times
	news   chan struct{}    // makes a waiting worker compute the time of its next claim again

	mu      sync.Mutex // guards the rest
	open    bool       // a change stream is open
	streams int        // the number of streams that have begun or ended
	events  int64
	rows    map[string]arrival // known rows by _id
	sure    bool               // rows contains all ready rows
	blocked bool               // ready rows may wait for a key
	freed   int64              // the number of the last event that freed a key
	planned bool               // rows contains all due times until end
	end     time.Time          // zero: no limit
	reread  time.Duration      // when due times may be read again

	first string        // the row for which pause was chosen
	pause time.Duration // the time from the arrival or the due time of that row to its claim
	wide  time.Duration // the spread

	looked time.Duration // when this process last found no row
	jitter float64
	polls  float64 // the time between two polls, in units of pollEvery
}

// An arrival is a row that is ready or will be ready.
type arrival struct {
	at    time.Duration // when the event arrived
	due   time.Time     // zero: the row is ready
	event int64
}

const (
	pollEvery   = time.Second // the time between polls without a stream
	mostKnown   = 1000        // rows that one read returns; events add at most twice as many
	leastSpread = 4 * time.Millisecond
	mostSpread  = 20       // in units of pollEvery
	wider       = 4.       // factor of the spread after a claim that found no row
	narrower    = 13. / 14 // factor of the spread after a claim that found a row
	fewPolls    = 10.      // shortest time between polls with a stream, in the same units
	mostPolls   = 300.     // longest time between polls with a stream, in the same units
)

func newArrivals(c clock.Clock) *arrivals {
	return &arrivals{clock: c, news: make(chan struct{}, 1), rows: map[string]arrival{},
		polls: fewPolls, wide: pollEvery / 20, jitter: 1}
}

func (a *arrivals) now() time.Duration { return a.clock.Now().Mono }

func (a *arrivals) hear(event rows.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events++
	key := rows.Key(event.ID)
	switch event.Kind {
	case rows.Opened:
		a.restart(true)
	case rows.Arrived:
		a.add(key, event.Due)
	case rows.Taken:
		delete(a.rows, key)
	case rows.Freed:
		delete(a.rows, key)
		a.freed = a.events
		if a.blocked {
			a.add(key, time.Time{})
		}
	}
}

// The caller holds mu.
func (a *arrivals) add(key string, due time.Time) {
	if was, is := a.rows[key]; is && due.IsZero() && a.server != nil {
		due = was.due // the row is ready again with the same due time
	}
	if !due.IsZero() && !a.end.IsZero() && due.After(a.end) {
		return
	}
	if _, is := a.rows[key]; !is && len(a.rows) >= 2*mostKnown {
		a.restart(a.open)
	}
	a.rows[key] = arrival{a.now(), due, a.events}
	signal(a.news)
}

func (a *arrivals) ended() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.restart(false)
}

// restart forgets all rows, because a stream has begun or ended, or the rows are too many. The
// caller holds mu.
func (a *arrivals) restart(open bool) {
	a.open, a.streams = open, a.streams+1
	a.sure, a.planned, a.end, a.reread, a.polls = false, false, time.Time{}, 0, fewPolls
	clear(a.rows)
	signal(a.news)
}

// next returns the known row with the earliest ready time, and that time. The caller holds mu.
func (a *arrivals) next() (key string, at time.Duration, is bool) {
	for id, one := range a.rows {
		ready := one.at
		if !one.due.IsZero() {
			ready = max(a.now()+min(one.due.Sub(a.server()), mostTime), ready)
		}
		if !is || ready < at || ready == at && id < key {
			key, at, is = id, ready, true
		}
	}
	return key, at, is
}

// knows reports whether the process knows all ready rows.
func (a *arrivals) knows() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open && a.sure && !a.isAtEnd()
}

// isAtEnd reports whether rows may become due that are not in rows, because they are due after end.
// The caller holds mu.
func (a *arrivals) isAtEnd() bool {
	return !a.end.IsZero() && (len(a.rows) == 0 || a.server().After(a.end))
}

// isWaited reports whether ready rows may wait for a key, and no change stream is open. Without a
// stream, no event reports that a key is free, so a worker must try to claim again.
func (a *arrivals) isWaited() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.blocked && !a.open
}

// A question contains the conditions of a claim, and a snapshot of arrivals from before the claim.
type question struct {
	rows.Ask
	streams int
	events  int64
	sent    time.Duration
}

func (a *arrivals) asks() question {
	a.mu.Lock()
	defer a.mu.Unlock()
	return question{streams: a.streams, events: a.events, sent: a.now()}
}

// answered records the result of a claim, and adapts the spread and the time between polls to it.
// If no row was ready, c is nil. In that case answered forgets the rows that were known and due at
// the time of the claim. These rows are not ready, belong to another queue, or wait for a key.
func (a *arrivals) answered(why reason, q question, c *claimed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := false
	if c != nil {
		var one arrival
		key := rows.Key(c.row.ID)
		if one, known = a.rows[key]; known && one.event <= q.events {
			delete(a.rows, key)
		}
	} else {
		a.empty(q)
	}
	switch by := narrower; {
	case why == heard:
		if c == nil {
			by = wider
		}
		a.wide = min(max(time.Duration(float64(a.wide)*by), leastSpread), mostSpread*pollEvery)
	case why == polling && c == nil && a.open:
		a.polls = min(2*a.polls, mostPolls)
	case why == polling && c != nil && !known: // no event reported the row
		a.polls, a.sure = fewPolls, false
	}
}

// empty records that no row was ready. The caller holds mu.
func (a *arrivals) empty(q question) {
	a.blocked = len(q.Held) > 0
	for key, one := range a.rows {
		if one.event <= q.events && !one.due.After(q.Due) {
			delete(a.rows, key)
		}
	}
	a.sure = a.open && a.streams == q.streams
	if a.blocked && a.freed > q.events { // a key may be free now
		a.add("", time.Time{})
	}
	if a.isAtEnd() {
		a.planned, a.end = false, time.Time{}
	}
	a.looked, a.jitter = a.now(), 0.8+0.4*clock.Chance(a.clock)
}

type reason int

const (
	working reason = iota // the worker has just handled a row
	idle                  // the last claim found no row
	hinted                // this process made a row ready
	heard                 // an event or a due time announced a row
	polling
	blind // the process must read due times before it claims
)

// turn returns the time of this process's next claim, and the reason for that claim. The caller
// holds mu.
func (a *arrivals) turn() (at time.Duration, why reason) {
	if a.isAtEnd() {
		return a.now(), working
	}
	polls := 1.
	if a.open {
		polls = a.polls
	}
	at, why = a.looked+time.Duration(a.jitter*polls*float64(pollEvery)), polling
	if a.server != nil && !a.planned && (a.sure || !a.open) && a.reread < at {
		at, why = a.reread, blind
	}
	key, ready, is := a.next()
	if !is {
		return at, why
	}
	if key != a.first {
		a.first, a.pause = key, upTo(a.clock, a.wide)
		if a.pause > pollEvery { // a row waits for at most twice pollEvery
			a.pause = pollEvery + upTo(a.clock, pollEvery)
		}
	}
	if ready += a.pause; ready < at {
		return ready, heard
	}
	return at, why
}

// await waits until a row may be ready, and returns the reason for the next claim.
func (e *engine) await(ctx context.Context) reason {
	a := e.arrivals
	a.mu.Lock()
	a.first = ""
	a.mu.Unlock()
	for ctx.Err() == nil {
		a.mu.Lock()
		at, why := a.turn()
		wait := at - a.now()
		a.mu.Unlock()
		if wait <= 0 && why == blind {
			e.plan()
			continue
		}
		if wait <= 0 {
			return why
		}
		t := e.clock.NewTimer(wait)
		select {
		case <-e.woken:
			t.Stop()
			return hinted
		case <-a.news:
		case <-t.C():
		case <-ctx.Done():
		}
		t.Stop()
	}
	return idle
}

func (e *engine) plan() {
	a := e.arrivals
	q, after := a.asks(), a.server()
	found, err := sent(e, func(ctx context.Context) ([]rows.Event, error) {
		return e.store.Later(ctx, after, mostKnown)
	})
	if err != nil && e.life.Err() == nil {
		e.log.Warn().Err(err).Msg("reading due times failed")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reread = a.now() + time.Duration(fewPolls)*jittered(a.clock, pollEvery)
	if err != nil || a.streams != q.streams {
		return
	}
	a.planned, a.end = a.open, time.Time{}
	if n := len(found); n == mostKnown {
		a.end = found[n-1].Due
	}
	for _, one := range found {
		a.rows[rows.Key(one.ID)] = arrival{q.sent, one.Due, q.events}
	}
}
