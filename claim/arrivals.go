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

	mu      sync.Mutex         // guards the rest
	open    bool               // a change stream is open
	since   time.Duration      // when rows was last cleared
	rows    map[string]arrival // known rows by _id
	sure    bool               // rows contains all ready rows
	blocked bool               // ready rows may wait for a key
	freed   time.Duration      // when an event last freed a key
	until   time.Time          // if sure is set, rows contains all rows that are due until then

	spread time.Duration
	poll   time.Duration // when the next poll is due
	polls  time.Duration // the time between two polls
}

// An arrival is a row that is ready or will be ready.
type arrival struct {
	at   time.Duration // when this process was informed
	due  time.Time     // zero: the row is ready
	part float64       // of the spread that passes before the claim, from 0 to 1
}

const (
	pollEvery   = time.Second // the time between polls without a stream
	mostKnown   = 1000        // rows that one read returns; events add at most twice as many
	leastSpread = 4 * time.Millisecond
	mostSpread  = 20 * pollEvery
	wider       = 4.              // factor of the spread after a claim that found no row
	narrower    = 13. / 14        // factor of the spread after a claim that found a row
	fewPolls    = 10 * pollEvery  // shortest time between polls with a stream
	mostPolls   = 300 * pollEvery // longest time between polls with a stream
)

func newArrivals(c clock.Clock) *arrivals {
	return &arrivals{clock: c, news: make(chan struct{}, 1), rows: map[string]arrival{},
		polls: pollEvery, spread: pollEvery / 20}
}

func (a *arrivals) now() time.Duration { return a.clock.Now().Mono }

func (a *arrivals) hear(event rows.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
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
		a.freed = a.now()
		if a.blocked {
			a.add(key, time.Time{})
		}
	}
}

// add adds a row, or replaces its due time. The caller holds mu.
func (a *arrivals) add(key string, due time.Time) {
	if was, is := a.rows[key]; is && due.IsZero() && a.server != nil {
		due = was.due // the row is ready again with the same due time
	}
	if _, is := a.rows[key]; !is && len(a.rows) >= 2*mostKnown {
		a.restart(a.open)
	}
	a.rows[key] = arrival{a.now(), due, clock.Chance(a.clock)}
	signal(a.news)
}

func (a *arrivals) ended() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.restart(false)
}

// restart forgets all rows, because a stream has begun or ended, or the rows are too many. The next
// poll is due immediately. The caller holds mu.
func (a *arrivals) restart(open bool) {
	a.open, a.since, a.poll, a.polls = open, a.now(), a.now(), pollEvery
	if open {
		a.polls = fewPolls
	}
	a.sure, a.until = false, time.Time{}
	clear(a.rows)
	signal(a.news)
}

// next returns the time of the first claim of a known row. If no row is known, this time is far in
// the future. The caller holds mu.
func (a *arrivals) next() time.Duration {
	at := a.now() + mostTime
	for _, one := range a.rows {
		ready, pause := one.at, time.Duration(one.part*float64(a.spread))
		if pause > pollEvery { // a row waits for at most twice pollEvery
			pause = pollEvery + time.Duration(one.part*float64(pollEvery))
		}
		if !one.due.IsZero() {
			ready = max(a.now()+min(one.due.Sub(a.server()), mostTime), ready)
		}
		at = min(at, ready+pause)
	}
	return at
}

// knows reports whether the process knows all ready rows, and need not claim one of them now.
func (a *arrivals) knows() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open && a.sure && a.next() > a.now()
}

// answered records the result of a claim that was sent at the given time, and adapts the spread and
// the time between polls to it. If no row was ready, c is nil.
func (a *arrivals) answered(why reason, sent time.Duration, ask rows.Ask, c *claimed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := false
	if c != nil {
		_, known = a.rows[rows.Key(c.row.ID)]
		delete(a.rows, rows.Key(c.row.ID))
	}
	switch {
	case why == heard && c == nil:
		a.spread = min(time.Duration(float64(a.spread)*wider), mostSpread)
	case why == heard:
		a.spread = max(time.Duration(float64(a.spread)*narrower), leastSpread)
	case why == polling && c == nil && a.open:
		a.polls = min(2*a.polls, mostPolls)
	case why == polling && !known && a.open: // no event reported the row
		a.polls, a.sure = fewPolls, false
	}
	if c == nil {
		a.empty(sent, ask)
	}
}

// empty records that no row was ready. It forgets the rows that were known and due when the claim
// was sent. These rows are not ready, belong to another queue, or wait for a key. The caller holds
// mu.
func (a *arrivals) empty(sent time.Duration, ask rows.Ask) {
	a.blocked = len(ask.Held) > 0
	for key, one := range a.rows {
		if one.at < sent && !one.due.After(ask.Due) {
			delete(a.rows, key)
		}
	}
	a.sure = a.open && a.since < sent
	if a.blocked && a.freed >= sent { // a key may be free now
		a.add("", time.Time{})
	}
	if a.until.Before(ask.Due) {
		a.until = ask.Due
	}
	a.poll = a.now() + jittered(a.clock, a.polls)
}

type reason int

const (
	working reason = iota // the worker has just handled a row
	idle                  // the last claim found no row
	failed                // the last claim failed, or the queue is paused
	hinted                // this process made a row ready
	heard                 // an event or a due time announced a row
	polling
)

// await waits until a row may be ready, and returns the reason for the next claim.
func (e *engine) await(ctx context.Context) reason {
	a := e.arrivals
	for ctx.Err() == nil {
		a.mu.Lock()
		at, why, planned := a.poll, polling, mostTime
		if next := a.next(); next < at {
			at, why = next, heard
		}
		if a.server != nil && a.sure {
			planned = a.until.Sub(a.server())
		}
		wait := at - a.now()
		a.mu.Unlock()
		switch {
		case wait <= 0:
			return why
		case planned <= 0 && e.plan(ctx):
			continue
		case planned <= 0:
			planned = fewPolls // then e reads the due times again
		}
		t := e.clock.NewTimer(min(wait, planned))
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

// plan reads the due times of later rows. It reports whether it succeeded. After a failure it waits
// until the next command may be sent, or until ctx ends.
func (e *engine) plan(ctx context.Context) bool {
	a := e.arrivals
	begun := a.now()
	a.mu.Lock()
	from := a.until
	a.mu.Unlock()
	found, err := sent(e, func(ctx context.Context) ([]rows.Event, error) {
		return e.store.Later(ctx, from, mostKnown)
	})
	if err != nil {
		if e.life.Err() == nil {
			e.log.Warn().Err(err).Msg("reading due times failed")
		}
		e.pace.wait(ctx.Done())
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since >= begun {
		return true
	}
	a.until = a.server().Add(mostTime)
	for i, one := range found {
		a.rows[rows.Key(one.ID)] = arrival{begun, one.Due, clock.Chance(a.clock)}
		if i == mostKnown-1 {
			a.until = one.Due
		}
	}
	return true
}
