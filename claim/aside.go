package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/rows"
)

// An aside is a row that this process leaves out of its questions for a while.
type aside struct {
	id     bson.RawValue
	until  time.Duration // by the clock's monotonic part
	pause  time.Duration
	reason string // why the server refuses to change it; empty for a row that is not understood
}

// A refused row is tried again after a pause that doubles.
const (
	refusedPause = time.Minute
	refusedMost  = time.Hour
)

// exclude leaves malformed rows out for a while, and tells of each once.
func (e *engine) exclude(bad []rows.Malformed) {
	for _, one := range bad {
		if e.tellOnce("row " + rows.Key(one.ID)) {
			e.log.Warn().Err(&one).Msg("row is not understood and left alone")
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now().Mono
	for _, one := range bad {
		if len(e.asides) < mostInFlight {
			e.asides[rows.Key(one.ID)] = aside{id: one.ID, until: now + refusedPause}
		}
	}
}

// setAside leaves rows out that the server refuses to change, so that the others go on.
func (e *engine) setAside(refused []rows.Refused) {
	for _, one := range refused {
		if e.tellOnce("refused " + rows.Key(one.ID)) {
			e.log.Error().Err(one.Err).Str("row", rows.Text(one.ID)).Msg("a row is set aside")
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now().Mono
	for _, one := range refused {
		key := rows.Key(one.ID)
		was := e.asides[key]
		pause := min(max(2*was.pause, refusedPause), refusedMost)
		if was.until > now {
			pause = was.pause // two commands met it
		}
		if was.id.Type != 0 || len(e.asides) < mostInFlight {
			e.asides[key] = aside{one.ID, now + max(pause, refusedPause), pause, printable(one.Err.Error())}
		}
	}
}

// passOver leaves the first rows of a question out that found no room among those that are set
// aside: it passed over so many, and more of these. They are asked for again when there is room.
func (e *engine) passOver(base, more int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.asides) >= mostInFlight && more > 0 {
		e.beyond = max(e.beyond, base+more)
	}
}

// without are the rows that are left out.
func (e *engine) without() (ids []bson.RawValue) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now().Mono
	for key, one := range e.asides {
		switch {
		case one.until > now:
			ids = append(ids, one.id)
		case now-one.until > one.pause: // it was tried again, and is refused no more
			delete(e.asides, key)
		}
	}
	if len(e.asides) < mostInFlight {
		e.beyond = 0
	}
	return ids
}

// restore forgets that rows were left out: the server has changed them.
func (e *engine) restore(these []rows.Row) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, row := range these {
		delete(e.asides, rows.Key(row.ID))
	}
}

// isAside reports whether a row is left out.
func (e *engine) isAside(id bson.RawValue) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asides[rows.Key(id)].until > e.clock.Now().Mono
}

// refused is how many rows are set aside because the server refuses to change them, and of one why.
func (e *engine) refused() (n int64, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range e.asides {
		if one.reason != "" {
			if n++; n == 1 {
				text = fmt.Sprintf("row %s: %s", rows.Text(one.id), one.reason)
			}
		}
	}
	return n, text
}

// errRefused is matched by the error of an end of a claim that the server refuses.
var errRefused = errors.New("the server refuses to change the row")

// refusals are the reasons for which the server did not end some of the claims. The others it may
// have ended without counting them.
func (e *engine) refusals(ends []outcome, err *error) map[string]error {
	var refused *rows.RefusedError
	if !errors.As(*err, &refused) {
		return nil
	}
	*err = nil
	e.setAside(refused.Rows)
	reasons := map[string]error{}
	for _, one := range refused.Rows {
		reasons[rows.Key(one.ID)] = one.Err
	}
	for _, o := range ends {
		o.c.tries++
	}
	return reasons
}

// shortened is an end that needs no more room than the claim did, so that no server refuses it by
// the size of the row: without the failure, and with the beginning of its text. False if it is so.
func (o outcome) shortened() (outcome, bool) {
	const most = 100
	had, text := o.c.row.Mark.Failures, o.end.Error
	if len(text) <= most && slices.Equal(o.end.Failures, had) {
		return o, false
	}
	o.end.Failures, o.end.Error = had, strings.ToValidUTF8(text[:min(most, len(text))], "")
	return o, true
}

// owe keeps the end of a claim that the server refuses, to try it again later. The row is claimed
// until then, and takes up no room.
func (e *engine) owe(o outcome) {
	o.c.owed = true
	if o.c.leave != nil {
		o.c.leave()
	}
	e.vacate(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.owed = append(e.owed, o)
}

// payOwed tries again what was refused. Under a slot that is lost it is left to the rescuer.
func (e *engine) payOwed(ctx context.Context) {
	e.mu.Lock()
	owed := e.owed
	e.owed = nil
	e.mu.Unlock()
	var left []outcome
	for _, o := range owed {
		switch {
		case o.c.s.err() != nil:
			e.finished(o.c)
		case e.isAside(o.c.row.ID):
			left = append(left, o)
		default:
			if err := e.finish(ctx, []outcome{o})[0]; err != nil && !errors.Is(err, ErrLost) {
				left = append(left, o)
			} else {
				e.restore([]rows.Row{o.c.row})
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.owed = append(e.owed, left...)
}

// A notice is the lock by which a process says how many rows are refused, for people and for
// distlock claims: one process of a queue has it.
type notice struct {
	guard *distlock.TryGuard
	n     int64
}

// notify takes the lock of the notice when rows are refused, with the number as its reason, and
// releases it when they are not. Two commands when that changes.
func (e *engine) notify(ctx context.Context) error {
	n, one := e.refused()
	if was := e.notice; was.guard != nil && (n != was.n || was.guard.Err() != nil) {
		e.notice = notice{}
		if err := was.guard.Release(); err != nil && !errors.Is(err, distlock.ErrLockLost) {
			return err
		}
	}
	if n == 0 || e.notice.guard != nil {
		return nil
	}
	text := fmt.Sprintf("refused by the server: %d rows, as %s", n, one)
	guard, err := e.try(ctx, e.prefix+":refused", text)
	if errors.Is(err, distlock.ErrHeld) {
		return nil
	}
	if err == nil {
		e.notice = notice{guard, n}
	}
	return err
}
