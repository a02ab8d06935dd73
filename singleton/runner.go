package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/clock"
	"mongodlm/internal/leading"
	"mongodlm/internal/metrics"
)

const (
	lookAgain  = 10 * time.Second // between two reads of settings that stop rounds, as in mongos
	resync     = time.Minute      // between two reads of the record by an idle holder
	firstPause = time.Second      // after the first failure of a store; doubles after each failure
	mostPause  = 30 * time.Second
)

// endTries is the maximum number of tries to record the end of a round after the end of Run's
// context.
const endTries = 3

// longest is the maximum duration in an argument.
const longest = 10 * 366 * 24 * time.Hour

// A runner is the common part of loops and schedules. It acquires the lock. While it holds the
// lock, it calls the function pass repeatedly. If a round is due, this function runs the round.
type runner struct {
	manager *distlock.Manager
	store   Store
	clock   clock.Clock
	log     zerolog.Logger
	name    string
	kind    Kind
	why     string
	turn    int // see Loop.Turn; zero for a schedule
	drain   time.Duration
	zone    *time.Location
	pass    func(ctx context.Context, t *tenure) (wait time.Duration, err error)
	next    func(t *tenure) time.Time // the due time of the next round, at the end of a round

	stopped string // the last logged reason for stopped rounds
	ahead   bool   // noteAhead has logged that the latest slot is ahead
}

// check validates the common fields and sets their defaults.
func (r *runner) check(ctx context.Context, m *distlock.Manager) error {
	switch {
	case ctx == nil:
		return bad("the context is nil; pass context.Background()")
	case m == nil:
		return bad("the Manager is nil")
	case r.name == "":
		return bad("Name is empty")
	}
	r.why = cmp.Or(r.why, "runs the "+string(r.kind))
	r.zone = cmp.Or(r.zone, time.UTC)
	if r.store == nil {
		db := m.Internal(leading.Key{}).Database()
		if db == nil {
			return bad("Store is nil, and the Manager has a Catalog of its own: set Store")
		}
		r.store, _ = NewStore(db) // fails only without a database
	}
	if r.drain < 0 {
		return bad("Drain is %v, must not be negative", r.drain)
	}
	r.drain = cmp.Or(r.drain, 30*time.Second)
	r.manager, r.clock = m, clock.From(ctx)
	r.log = m.Config().Logger.With().Str("singleton", catalog.Printable(r.name, 200)).Logger()
	return nil
}

// A tenure is a period in which this process holds the lock.
type tenure struct {
	guard   *distlock.TryGuard
	rec     Status // the record after the last read or write
	entered bool   // rec is valid
	read    clock.Reading
	told    string // the last logged reason why no round begins
	rounds  int    // the number of rounds in this tenure

	open   bool          // the end of the last round is not recorded yet
	failed error         // the error of the last round
	took   time.Duration // by the last round

	planned bool          // loop: due is set; schedule: it is compared with the record
	due     time.Duration // loop: when the next round is due, by the process's monotonic clock
}

// run acquires the lock repeatedly, until ctx ends or an error is permanent.
func (r *runner) run(ctx context.Context) error {
	defer metrics.StandsBy(r.told(), string(r.kind), r.name)()
	r.told().Sampled(metrics.Zeros(r.labels(), metrics.Begun, metrics.Rounds)...)
	for ctx.Err() == nil {
		// A round may continue after the end of ctx, so the guard's context does not end with ctx.
		base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
		guard, err := r.manager.Internal(leading.Key{}).Standby(r.name).Lock(base,
			distlock.Label(string(r.kind)), distlock.Why(r.why))
		stop()
		if err == nil {
			err = r.hold(ctx, &tenure{guard: guard})
		} else if ctx.Err() != nil {
			err = nil
		}
		cancel(nil)
		if err != nil && !errors.Is(err, distlock.ErrLockLost) { // after a loss, run acquires again
			return fmt.Errorf("singleton: %s %q: %w", r.kind, catalog.Printable(r.name, 200), err)
		}
	}
	return nil
}

// hold calls the function pass until the lock is lost, ctx ends, the turn is over, or an error is
// permanent. If ctx ends before the end of the last round is recorded, hold tries again to record
// it. It always releases the lock.
func (r *runner) hold(ctx context.Context, t *tenure) (err error) {
	defer func() {
		if released := t.guard.Release(); !errors.Is(released, distlock.ErrLockLost) {
			err = errors.Join(err, released)
		}
	}()
	defer metrics.Leading(r.told(), t.guard.Context(), string(r.kind), r.name)()
	either, cancel := context.WithCancel(t.guard.Context())
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	pause := firstPause
	over := func() bool { return !t.open && r.turn > 0 && t.rounds >= r.turn }
	for ctx.Err() == nil && t.guard.Err() == nil && !over() {
		wait, err := r.pass(ctx, t)
		switch {
		case err == nil:
			pause, t.told = firstPause, ""
		case t.guard.Err() != nil || ctx.Err() != nil && !t.open:
			return nil
		case hopeless(err):
			return err
		case errors.Is(err, ErrStale):
			if t.guard.Verify(either) == nil { // otherwise another process may hold the lock
				return fmt.Errorf("%w; remove the document from %s, if the locks were reset on purpose",
					err, RecordsCollection)
			}
			wait = pause
		case unreadable(err): // until an operator repairs the settings
			r.note(t, err)
		default:
			r.note(t, err)
			t.entered = false
			wait, pause = pause, min(2*pause, mostPause)
		}
		clock.Sleep(r.clock, wait, either.Done())
	}
	for tries := 1; t.open && tries < endTries; tries++ {
		clock.Sleep(r.clock, firstPause, t.guard.Context().Done())
		t.entered = false
		_, _ = r.pass(ctx, t)
	}
	return nil
}

// hopeless reports whether an error is permanent for all processes.
func hopeless(err error) bool {
	return errors.Is(err, ErrNeverFires) || errors.Is(err, ErrBadSchedule) ||
		errors.As(err, new(*catalog.PrivilegeError)) ||
		errors.As(err, new(*MalformedError)) && !unreadable(err)
}

// unreadable reports whether err is a parse error of the settings.
func unreadable(err error) bool {
	malformed, is := errors.AsType[*MalformedError](err)
	return is && malformed.Collection == SettingsCollection
}

// note logs an error that prevents a round. It logs a repeated error only once, until a pass of the
// loop has no error. If the error is a parse error of the settings, note also writes it into the
// record, so that [List] returns it.
func (r *runner) note(t *tenure, err error) {
	text := "the store"
	if unreadable(err) {
		text = catalog.Printable(err.Error(), 600)
	}
	if t.told != text {
		t.told = text
		r.log.Warn().Err(err).Msg("no round begins")
	}
	if unreadable(err) && t.rec.LastError != text {
		if err := r.change(t, bson.D{e("lastError", text)}); err != nil {
			t.entered = false // the next pass reads the record
		}
	}
}

// change writes fields of the record under the guard's fence, within CommandTimeout. It continues
// after the end of Run's context, because the end of a round must be recorded. If a later holder
// has written its fence, the record stays unchanged.
func (r *runner) change(t *tenure, set bson.D, dates ...string) error {
	return r.changeWithin(context.WithoutCancel(t.guard.Context()), t,
		Change{Rev: t.rec.rev, Dates: dates, Set: set})
}

func (r *runner) changeWithin(ctx context.Context, t *tenure, c Change) error {
	ctx, cancel := context.WithTimeout(ctx, r.manager.Config().CommandTimeout)
	defer cancel()
	c.Name, c.Fence = r.name, t.guard.Fence()
	c.Set = append(bson.D{e("process", t.guard.Process())}, c.Set...)
	raw, err := r.store.Change(ctx, c)
	if err != nil {
		return err
	}
	read := r.clock.Now()
	rec, err := parseRecord(raw)
	if err == nil {
		t.rec, t.read, t.entered = rec, read, true
	}
	return err
}

// enter writes the fence into the record and reads the record. After that, no earlier holder can
// change the record. Each tenure begins with enter.
func (r *runner) enter(ctx context.Context, t *tenure) error {
	err := r.changeWithin(ctx, t, Change{})
	if err == nil && t.rec.Kind == "" { // the record is new
		err = r.changeWithin(ctx, t, Change{Set: bson.D{e("kind", r.kind)}})
	}
	if err == nil && t.rec.Kind != r.kind {
		err = &MalformedError{Collection: RecordsCollection, ID: r.name, Field: "kind",
			Problem: fmt.Sprintf("is %q, not %q: the name is already in use; choose another name",
				t.rec.Kind, r.kind)}
	}
	return err
}

// now estimates the server's time, from the last read of the record and the time since that read.
// If the server's clock has not stepped, the estimate is never early, and late by at most a round
// trip.
func (r *runner) now(t *tenure) time.Time {
	return t.rec.seen.Add(r.clock.Now().Mono - t.read.Mono)
}

// noteAhead logs that the latest slot is more than a minute ahead of the server's clock. It logs
// this only once while the slot is ahead.
func (r *runner) noteAhead(t *tenure) {
	ahead := t.rec.Slot.Sub(r.now(t))
	if was := r.ahead; ahead > resync && !was {
		r.log.Warn().Time("slot", t.rec.Slot).Dur("ahead", ahead).
			Str("repair", "if the server's clock is right, run distlock loops NAME --forget-future, or call "+
				"singleton.ForgetFuture").
			Msg("the latest slot is ahead of the server's clock")
	}
	r.ahead = ahead > resync
}

func (r *runner) may(ctx context.Context, t *tenure) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.manager.Config().CommandTimeout)
	defer cancel()
	found, err := r.store.Settings(ctx, r.name)
	if err != nil {
		return false, err
	}
	settings, err := ParseSettings(found[r.name])
	if err != nil {
		return false, err
	}
	ok, why := settings.MayRun(r.now(t).In(r.zone))
	if !ok && r.stopped != why {
		r.log.Info().Str("why", why).Msg("rounds are stopped")
	}
	r.stopped = why
	return ok, nil
}

// end records the end of the last round. If no round has ended, or if an earlier try has recorded
// this end, end does nothing.
func (r *runner) end(t *tenure) (err error) {
	if t.open && t.rec.State == Running && t.rec.runFence == t.guard.Fence() {
		err = r.change(t, ending(t.rec, t.failed, r.next(t), t.took), "ended")
	}
	t.open = err != nil
	return err
}

// round calls the given function, which runs a round whose beginning is recorded. The context of
// the round ends if the lock is lost, or if Drain has passed since the end of ctx. If the function
// panics, the error of the round is a *PanicError. If the lock is lost before the call, round does
// not call the function.
func (r *runner) round(ctx context.Context, t *tenure, do func(context.Context) error) {
	// Manager.Close waits for the round, and then releases the lock.
	defer r.manager.Internal(leading.Key{}).Use(t.guard)()
	if t.guard.Err() != nil {
		return
	}
	over := r.beginRound()
	defer func() {
		over(t.failed)
		t.open, t.took = true, r.clock.Now().Mono-t.read.Mono
		t.rounds++
	}()
	round, cancel := context.WithCancelCause(t.guard.Context())
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		if clock.Sleep(r.clock, r.drain, round.Done()) {
			cancel(ErrShutdown)
		}
	})()
	defer func() {
		if value := recover(); value != nil {
			stack := string(debug.Stack())
			t.failed = &PanicError{Value: value, Stack: stack}
			r.log.Error().Err(t.failed).Str("stack", stack).Msg("round panicked")
		}
	}()
	t.failed = leading.Asked(do(round))
}

func (r *runner) told() metrics.Observer { return metrics.Of(r.manager.Config().Observer) }

func (r *runner) labels() []string { return []string{string(r.kind), r.name} }

// beginRound reports the beginning of a round. The returned function reports the round's end.
func (r *runner) beginRound() (over func(error)) {
	labels, began := r.labels(), r.clock.Now().Mono
	r.told().Sampled(metrics.Sample{Metric: metrics.Begun, Labels: labels, Value: 1})
	return func(err error) {
		now, outcome := r.clock.Now(), "done"
		if err != nil {
			outcome = "failed"
		}
		r.told().Sampled(
			metrics.Sample{Metric: metrics.Rounds, Labels: append([]string{outcome}, labels...), Value: 1},
			metrics.Sample{Metric: metrics.RoundTime, Labels: labels, Value: (now.Mono - began).Seconds()},
			metrics.Sample{Metric: metrics.LastRound, Labels: labels,
				Value: float64(now.Wall.UnixMilli()) / 1e3})
	}
}

// ending returns the fields that record the end of a round.
func ending(rec Status, err error, next time.Time, took time.Duration) bson.D {
	state, text, failures := Done, "", int64(0)
	if err != nil {
		state, text, failures = Failed, catalog.Printable(err.Error(), 600), rec.Failures+1
	}
	return bson.D{
		e("state", state), e("lastError", text), e("failures", failures),
		e("rounds", rec.Rounds+1), e("next", next), over(rec.Runs, state, text, took),
	}
}
