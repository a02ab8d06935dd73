package claim

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// laters is what a process knows of the rows that are due later: the earliest of them, as read once
// and as told since. It belongs to arrivals, whose mutex guards it.
type laters struct {
	now     func() time.Time // of the server; nil: rows are not due at a time
	at      map[string]later
	order   []later       // by time
	known   bool          // order was read
	end     time.Time     // those after it are not in order; zero: all are
	low     int           // how few there may be until more are read
	read    time.Duration // when they may be read again
	last    time.Duration // when they were
	planned time.Time     // the turn is that for what is due then; zero: it is not
}

// A later is a row that is due at a time, by the event that told it.
type later struct {
	key   string
	due   time.Time
	event int64
}

// find returns where a row is in order, or belongs.
func (l *laters) find(due time.Time, key string) (int, bool) {
	return slices.BinarySearchFunc(l.order, later{key: key, due: due}, func(one, other later) int {
		if c := one.due.Compare(other.due); c != 0 {
			return c
		}
		return cmp.Compare(one.key, other.key)
	})
}

func (l *laters) drop(key string) {
	if one, is := l.at[key]; is {
		i, _ := l.find(one.due, key)
		l.order = slices.Delete(l.order, i, i+1)
		delete(l.at, key)
	}
}

// put adds a row, unless it is behind the end.
func (l *laters) put(one later) {
	l.drop(one.key)
	if !l.end.IsZero() && one.due.After(l.end) {
		return
	}
	i, _ := l.find(one.due, one.key)
	l.order = slices.Insert(l.order, i, one)
	l.at[one.key] = one
	if last := len(l.order) - 1; last >= mostKnown {
		delete(l.at, l.order[last].key)
		l.order = l.order[:last]
		l.end = l.order[last-1].due
	}
}

// forget is for a stream that begins or ends.
func (l *laters) forget() {
	clear(l.at)
	l.order, l.known, l.end, l.read, l.planned = nil, false, time.Time{}, 0, time.Time{}
}

// passed forgets those that were asked for: due until then, and told until that event.
func (l *laters) passed(q question) {
	for i := 0; i < len(l.order) && !l.order[i].due.After(q.due); {
		if one := l.order[i]; one.event <= q.events {
			l.drop(one.key)
		} else {
			i++
		}
	}
}

// doubt says that a row that seemed ready was not: it may be due later. That is read once a Poll.
func (l *laters) doubt(poll time.Duration) {
	l.known, l.read = false, max(l.read, l.last+poll)
}

// overdue reports whether a row is due that nobody was seen to claim.
func (l *laters) overdue() bool {
	return len(l.order) > 0 && !l.order[0].due.After(l.now())
}

// told takes in that a row is ready, and reports whether it is known when that is due: not of one
// that is ready again, unless it was known before.
func (l *laters) told(key string, due time.Time, event int64) bool {
	one, is := l.at[key]
	if l.now == nil || due.IsZero() && !is {
		return false
	}
	if one.event = event; !due.IsZero() {
		one.key, one.due = key, due
	}
	l.put(one)
	return true
}

// first reports whether a row is the first of all.
func (l *laters) first(key string) bool { return len(l.order) > 0 && l.order[0].key == key }

// plan sets the turn of this process for what is due next, as long as nothing is ready.
func (a *arrivals) plan() (planned bool) {
	l := &a.later
	if len(l.order) == 0 || a.told() && !a.quiet() {
		return !l.planned.IsZero()
	}
	if first := l.order[0].due; !first.Equal(l.planned) {
		a.draw()
		a.turn += min(max(first.Sub(l.now()), 0), mostTime)
		l.planned = first
	}
	return true
}

// plansAnew draws the turn again, since the server's clock was set.
func (a *arrivals) plansAnew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.draw()
	signal(a.news)
}

// blind reports whether what is due later is to be read, as soon as that may be: it is not known,
// or most of it is over. Where no stream tells of rows it is read once in a while.
func (a *arrivals) blind() bool {
	l := &a.later
	switch {
	case l.now == nil || a.asked.IsZero():
		return false
	case a.open:
		return a.sure && (!l.known || !l.end.IsZero() && len(l.order) <= l.low)
	}
	return len(l.order) == 0
}

// foreseen takes in what was read after a question.
func (a *arrivals) foreseen(q question, found []rows.Coming, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := &a.later
	now := a.clock.Now().Mono
	switch l.last = now; {
	case err != nil:
		l.read = now + jittered(a.clock, min(a.poll, failurePause))
		return
	case a.streams != q.streams:
		return
	case !a.open:
		l.read = now + jittered(a.clock, fewPolls*a.poll)
	}
	l.known, l.end = true, time.Time{}
	if n := len(found); n == mostKnown {
		l.end, l.low = found[n-1].Due, upTo(a.clock, mostKnown/2-1)
	}
	for _, one := range found {
		l.put(later{rows.Key(one.ID), one.Due, q.events})
	}
}

// foresee reads which rows are due next, if that is not known. One command.
func (e *engine) foresee(ctx context.Context) {
	a := e.arrivals
	a.mu.Lock()
	q := question{streams: a.streams, events: a.events, sent: a.clock.Now().Mono, due: a.asked}
	blind := a.blind() && a.later.read <= q.sent
	a.mu.Unlock()
	if !blind {
		return
	}
	ctx, done := e.command(ctx)
	defer done()
	found, err := e.store.Later(ctx, q.due, mostKnown)
	if a.foreseen(q, found, err); err != nil && ctx.Err() == nil {
		e.log.Warn().Err(err).Msg("reading which rows are due next failed")
	}
}

// await waits until there may be rows, and says why it thinks so.
func (e *engine) await(ctx context.Context) (why reason) {
	for why = unseeing; why == unseeing; {
		e.foresee(ctx)
		why = e.arrivals.await(ctx, e.woken)
	}
	return why
}

// added wakes the process for rows that it has added, now or when they are due.
func (e *engine) added(docs []any) {
	a := e.arrivals
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, doc := range docs {
		raw, err := bson.Marshal(doc)
		due, dated := bson.Raw(raw).Lookup(strings.Split(e.cfg.Due, ".")...).TimeOK()
		now, _ := e.server.last()
		switch {
		case e.cfg.Due == "" || err != nil || now.IsZero() || dated && !due.After(now):
			signal(e.woken)
			return
		case dated && !a.open: // else the stream tells
			key := bson.NewObjectID().Hex()
			if a.later.told(key, due.UTC(), a.events) && a.later.first(key) {
				signal(a.news)
			}
		}
	}
}
