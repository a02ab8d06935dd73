package singleton

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// A Loop runs a function once per interval, in one of the processes that have a Loop of this name.
// The zero value of an optional field means its default.
type Loop struct {
	// Name is the name of the lock, of the settings and of the record. Required.
	Name string
	// Store keeps the settings and the record. By default they are in the database of the locks.
	// RunNow needs a Store.
	Store Store
	// Every is the time from the beginning of a round to the beginning of the next, at least 1 ms.
	// The next round follows immediately if a round takes longer. Required.
	Every time.Duration
	// Jitter is the maximum of the random time that is added to Every. Default zero.
	Jitter time.Duration
	// Do runs a round. Its context ends when the lock is lost, or when Drain has passed since the
	// end of Run's context. Do must return then, because Run waits for it. Protected resources
	// check the fence of guard. A round fails if Do returns an error or panics; the loop continues.
	// Required.
	Do func(ctx context.Context, guard *distlock.TryGuard) error
	// Turn is the number of rounds after which a process releases the lock to the next process.
	// Default 0: it keeps the lock.
	Turn int
	// Why is the lock's reason. Default "runs the loop".
	Why string
	// BackOff is the longest pause after failed rounds. The first pause is as long as Every, and each
	// further failure doubles it. Default ten times Every.
	BackOff time.Duration
	// Drain is the time for which a round may continue after the end of Run's context. Default 30 s.
	Drain time.Duration
	// Zone is the time zone of the active window. Default UTC, so that all processes use the same
	// zone. mongos used the time zone of its machine, which is time.Local.
	Zone *time.Location
}

// Run runs a Loop until ctx ends. It queues for the lock, and runs rounds while it holds the lock,
// as mongos' balancer did from 3.4 on. When ctx ends, Run waits for the present round, releases the
// lock and returns nil.
//
// At most one round of a name runs under a trusted guard at any instant, under the assumptions of
// package distlock. A holder records the time of the next round, and a new holder keeps that time.
// If the previous holder died in a round, the new holder counts the interval from the beginning of
// that round. So restarts do not make rounds more frequent.
//
// Run reads the settings before each round, see [ParseSettings]. If they stop the round or cannot
// be parsed, Run reads them again after 10 s, or after one interval if that is less. [List] returns
// the record.
//
// Commands: three a round, one when the settings stop the round, two more for a new holder, and one
// a minute during a longer pause, to find requests of [Loop.RunNow].
//
// Errors: [ErrBadArgument] before any I/O; the errors that end a wait for the lock, such as
// distlock.ErrClosed; [ErrStale]; a *MalformedError of the record; a missing privilege; a release
// that failed. Run does not return a round's error. It records the error and logs it with the
// Manager's logger. When a store does not answer, Run tries again after pauses that double from 1 s
// to 30 s.
func Run(ctx context.Context, m *distlock.Manager, l Loop) error {
	r := &runner{store: l.Store, name: l.Name, kind: KindLoop, why: l.Why, drain: l.Drain,
		zone: l.Zone}
	if err := r.check(ctx, m); err != nil {
		return err
	}
	switch {
	case l.Do == nil:
		return bad("Do is nil")
	case l.Every < time.Millisecond:
		return bad("Every is %v, must be at least 1ms", l.Every)
	case l.Jitter < 0:
		return bad("Jitter is %v, must not be negative", l.Jitter)
	case l.Turn < 0:
		return bad("Turn is %d, must not be negative", l.Turn)
	case max(l.Every, l.Jitter, l.BackOff) > longest:
		return bad("Every is %v, Jitter %v and BackOff %v, must be at most ten years", l.Every, l.Jitter,
			l.BackOff)
	case l.BackOff != 0 && l.BackOff < l.Every:
		return bad("BackOff is %v, must be at least Every (%v)", l.BackOff, l.Every)
	}
	if l.BackOff == 0 {
		l.BackOff = 10 * l.Every
	}
	r.pass = func(ctx context.Context, t *tenure) (time.Duration, error) { return l.pass(ctx, r, t) }
	return r.run(ctx)
}

// pass runs a round if one is due, and returns the time until the next pass.
func (l *Loop) pass(ctx context.Context, r *runner, t *tenure) (time.Duration, error) {
	if !t.entered {
		if err := r.enter(t.guard.Context(), t); err != nil {
			return 0, err
		}
		if !t.planned {
			t.due, t.planned = r.clock.Now().Mono+max(0, l.first(t.rec).Sub(r.now(t))), true
		}
	}
	if t.open {
		return 0, l.end(r, t)
	}
	now := r.clock.Now().Mono
	if t.due > now && !t.rec.asked() {
		if look := t.read.Mono + resync; look < t.due { // to find a request of RunNow
			if look <= now {
				return 0, r.enter(t.guard.Context(), t)
			}
			return look - now, nil
		}
		return t.due - now, nil
	}
	if ok, err := r.may(t.guard.Context(), t); err != nil || !ok {
		return min(l.Every, lookAgain), err
	}
	if ctx.Err() != nil || t.guard.Err() != nil {
		return 0, nil
	}
	if err := r.change(t, bson.D{
		e("state", Running), e("runFence", t.guard.Fence()),
		e("answered", t.rec.asks), r.beginning(t, time.Time{}, 0),
	}, "begun"); err != nil {
		return 0, err
	}
	t.due = t.read.Mono + l.Every + l.jitter(r.clock)
	began, err := r.work(ctx, t, func(ctx context.Context) error { return l.Do(ctx, t.guard) })
	if !began {
		return 0, nil
	}
	t.rounds++
	now = r.clock.Now().Mono
	if err != nil {
		r.log.Warn().Err(err).Int64("fence", t.guard.Fence()).Msg("round failed")
		t.due = now + l.pause(t.rec.Failures) + l.jitter(r.clock)
	}
	t.ending, t.open = ending(t.rec, err, r.now(t).Add(t.due-now), now-t.read.Mono), true
	return 0, l.end(r, t)
}

// end records the end of the last round. It does nothing if the record does not name this round as
// running.
func (l *Loop) end(r *runner, t *tenure) (err error) {
	if t.rec.State == Running && t.rec.runFence == t.guard.Fence() {
		err = r.change(t, t.ending, "ended")
	}
	t.open = err != nil
	t.over = !t.open && t.rounds == l.Turn
	return err
}

// first returns the due time of a new holder's first round. That is the recorded time. If the last
// round has no recorded end, it is one interval after the beginning of that round.
func (l *Loop) first(rec Status) time.Time {
	due := rec.Next
	if rec.State == Running {
		due = rec.Begun.Add(l.Every)
	}
	if due.After(rec.seen.Add(l.BackOff + l.Jitter)) { // no process of this Loop wrote that time
		return rec.seen
	}
	return due
}

// pause returns the pause after a failed round. failures is the number of failed rounds immediately
// before it.
func (l *Loop) pause(failures int64) time.Duration {
	pause := l.Every
	for ; failures > 0 && pause < l.BackOff; failures-- {
		pause *= 2
	}
	return min(pause, l.BackOff)
}

func (l *Loop) jitter(c clock.Clock) time.Duration {
	return time.Duration(clock.Chance(c) * float64(l.Jitter))
}
