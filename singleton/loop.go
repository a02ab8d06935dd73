package singleton

import (
	"cmp"
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// A Loop describes a function that runs at an interval, in one of several processes. All these
// processes must have a Loop with the same name. If an optional field is zero, its default applies.
type Loop struct {
	// Name is the name of the lock, and the _id of the settings document and the record. Required.
	Name string
	// Store is the store of the settings and the record. The default is a store in the database of the
	// locks. RunNow requires a Store.
	Store Store
	// Every is the interval between the beginnings of two consecutive rounds, at least 1 ms. If a
	// round takes longer, the next round follows immediately. Required.
	Every time.Duration
	// Jitter is the maximum random time that Run adds to each interval, and to each pause after a
	// failure. Default zero.
	Jitter time.Duration
	// Do runs a round. Its context ends if the lock is lost, if the Manager is closed, or if Drain has
	// passed since the end of Run's context. Do must return then, because Run waits for it. Pass the
	// fence of the guard to the resources that Do writes to. If Do returns an error or panics, the
	// round fails and the loop continues. Required.
	Do func(ctx context.Context, guard *distlock.TryGuard) error
	// Turn is the number of rounds after which a process releases the lock to the next process. By
	// default a process keeps the lock.
	Turn int
	// Why is the reason in the lock document, see [distlock.Why]. Default "runs the loop".
	Why string
	// BackOff is the longest pause after a failed round. After the first failure the pause is as long
	// as Every. Each further failure doubles the pause. Default ten times Every.
	BackOff time.Duration
	// Drain is the time from the end of Run's context to the end of the round's context. Default 30 s.
	Drain time.Duration
	// Zone is the time zone of the active window in the settings. The default is UTC, so that all
	// processes use the same zone. mongos uses the time zone of its machine, which is time.Local.
	Zone *time.Location
}

// Run runs a Loop until ctx ends. It queues for the lock, and runs rounds while it holds the lock,
// like the balancer of MongoDB 3.4 and later. When ctx ends, Run waits for the current round,
// releases the lock and returns nil.
//
// Under the assumptions of package distlock, at any instant at most one round of a name has a guard
// whose Err is nil. A new holder keeps the recorded due time of the next round. If the holder died
// in a round, the next round is due one interval after the beginning of that round.
//
// Run reads the settings before each round, see [ParseSettings]. If they stop the round or cannot
// be parsed, Run reads them again after 10 s, or after one interval if the interval is shorter.
// [List] returns the settings and the record.
//
// Run sends three commands for a round, one command if the settings stop the round, and up to two
// more for a new holder. If the next round is more than a minute away, Run sends one command a
// minute to find requests of [Loop.RunNow].
//
// Run does not return the error of a round. It records the error, and logs it with the Manager's
// logger. If the store does not answer, Run tries again. The pauses between these tries double from
// 1 s to 30 s.
//
// Errors: [ErrBadArgument] before any I/O; the errors that end a wait for the lock, such as
// distlock.ErrClosed; [ErrStale]; a *MalformedError if the record cannot be parsed; a
// *distlock.PrivilegeError; the error of a failed release.
func Run(ctx context.Context, m *distlock.Manager, l Loop) error {
	r := &runner{store: l.Store, name: l.Name, kind: KindLoop, why: l.Why, turn: l.Turn,
		drain: l.Drain, zone: l.Zone}
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
	l.BackOff = cmp.Or(l.BackOff, 10*l.Every)
	r.pass = func(ctx context.Context, t *tenure) (time.Duration, error) { return l.pass(ctx, r, t) }
	r.next = func(t *tenure) time.Time { return r.now(t).Add(t.due - r.clock.Now().Mono) }
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
		return 0, r.end(t)
	}
	now := r.clock.Now().Mono
	// A round of this tenure may be recorded as begun although the reply was lost.
	begun := t.rec.State == Running && t.rec.runFence == t.guard.Fence()
	if t.due > now && !t.rec.asked() && !begun {
		look := t.read.Mono + resync // to find a request of RunNow
		if look <= now {
			return 0, r.enter(t.guard.Context(), t)
		}
		return min(t.due, look) - now, nil
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
	r.round(ctx, t, func(ctx context.Context) error { return l.Do(ctx, t.guard) })
	if t.open && t.failed != nil {
		r.log.Warn().Err(t.failed).Int64("fence", t.guard.Fence()).Msg("round failed")
		t.due = r.clock.Now().Mono + l.pause(t.rec.Failures) + l.jitter(r.clock)
	}
	return 0, r.end(t)
}

// first returns the due time of a new holder's first round. This is usually Next in the record. If
// the latest round has no recorded end, the due time is one interval after the beginning of that
// round.
func (l *Loop) first(rec Status) time.Time {
	due := rec.Next
	if rec.State == Running {
		due = rec.Begun.Add(l.Every)
	}
	if due.After(rec.seen.Add(l.BackOff + l.Jitter)) { // the Loop or the server's clock was changed
		return rec.seen
	}
	return due
}

// pause returns the pause after a failed round. The argument failures is the number of consecutive
// failures before that round.
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
