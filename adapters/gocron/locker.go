package gocronlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"mongodlm/distlock"
	"mongodlm/singleton"
)

// ErrConfig is matched by the errors of NewLocker and NewElector. The text names the invalid field.
var ErrConfig = errors.New("gocronlock: bad configuration")

// Config configures a Locker. Set either Schedule or Gap.
type Config struct {
	// Manager is the Manager of this process. Required.
	Manager *distlock.Manager
	// Store holds the records and the settings of the jobs, see package singleton. Required.
	Store singleton.Store
	// Schedule is for jobs that are due at the same times in all processes. Each slot of Schedule runs
	// at most once. It may be a schedule of github.com/robfig/cron/v3.
	Schedule singleton.Schedule
	// Gap is the minimum time between the beginnings of two runs. It is for jobs of
	// gocron.DurationJob, which are due at different times in each process. Nine tenths of the job's
	// interval is a good value. If Gap is the whole interval and a timer fires slightly early, that
	// run is skipped.
	Gap time.Duration
	// Early is the time by which a process's clock may be ahead of the server's clock. If the clock is
	// further ahead, the process calls Lock too early and does not run the slot. Default 1 s. Early is
	// for Schedule only.
	Early time.Duration
	// Zone is the time zone of the times that Schedule.Next receives. Default UTC. gocron itself uses
	// time.Local by default, see gocron.WithLocation.
	Zone *time.Location
	// Wait is the maximum time for which a job waits for the lock. Default 1 s. If the lock is still
	// held after this time, Lock returns distlock.ErrHeld.
	Wait time.Duration
}

// ErrSameName is returned by Lock if a job with the same name has already asked this Locker for the
// same slot. The error also matches singleton.ErrNotDue. One cause is two jobs with one name, for
// example jobs of one method value without gocron.WithName. Then only one of the jobs runs. The
// other cause is a job that is due more often than Config.Schedule or Gap allows.
var ErrSameName = errors.New("gocronlock: a job of this name has asked for the slot already; " +
	"give each job a name of its own by gocron.WithName, and let none be due more often than " +
	"Schedule or Gap says")

// A Locker is a gocron.Locker. If all jobs can share one Schedule or Gap, pass the Locker to
// gocron.WithDistributedLocker. Otherwise pass a separate Locker for each job to
// gocron.WithDistributedJobLocker. A Locker is safe for concurrent use.
type Locker struct {
	c Config

	mu    sync.Mutex           // guards asked
	asked map[string]time.Time // the slot of the last call of Lock, by job name
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker. It does no I/O. Errors: ErrConfig.
func NewLocker(c Config) (*Locker, error) {
	switch {
	case c.Manager == nil:
		return nil, fmt.Errorf("%w: Manager is nil", ErrConfig)
	case c.Store == nil:
		return nil, fmt.Errorf("%w: Store is nil; make one with singleton.NewStore", ErrConfig)
	case (c.Schedule == nil) == (c.Gap == 0):
		return nil, fmt.Errorf("%w: give either Schedule or Gap", ErrConfig)
	case c.Gap < 0 || c.Early < 0 || c.Wait < 0:
		return nil, fmt.Errorf("%w: Gap (%v), Early (%v) or Wait (%v) is negative", ErrConfig, c.Gap,
			c.Early, c.Wait)
	}
	c.Early, c.Wait = cmp.Or(c.Early, time.Second), cmp.Or(c.Wait, time.Second)
	if c.Zone == nil {
		c.Zone = time.UTC
	}
	return &Locker{c: c, asked: map[string]time.Time{}}, nil
}

// Lock implements gocron.Locker. It acquires the lock with the job's name and begins the slot. If
// the lock is free, Lock sends four commands. For a new name it sends up to two more. If Lock
// returns an error, the job does not run, and an event listener of gocron.AfterLockError receives
// the error:
//
//   - singleton.ErrNotDue if the slot has already begun, or if the job's settings in the
//     Store stop the job. The error also matches ErrSameName if a job of that name has
//     asked for the same slot before
//   - distlock.ErrHeld if the job runs in another process
//   - other errors of the lock and the store
func (l *Locker) Lock(ctx context.Context, job string) (_ gocron.Lock, err error) {
	if ctx == nil {
		return nil, fmt.Errorf("%w: the context is nil", ErrConfig)
	}
	// gocron's context ends with the scheduler. The guard must outlive that context, because the end
	// of the job is recorded later.
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	guard, err := l.c.Manager.Lock(job).Lock(base, distlock.WaitAtMost(l.c.Wait),
		distlock.Label("gocron"), distlock.Why("runs the job"))
	stop()
	if err != nil {
		cancel(nil)
		return nil, err
	}
	var slot *singleton.BegunSlot
	defer func() { // runs also when the Schedule panics
		if slot == nil {
			err = errors.Join(err, guard.Release())
			cancel(nil)
		}
	}()
	var latest time.Time // the slot that begins, or the latest slot if none begins
	choose := func(last, now time.Time) (time.Time, error) {
		latest = last
		return l.choose(last, now)
	}
	slot, err = singleton.BeginSlot(ctx, l.c.Manager, guard, l.c.Store, choose)
	if err == nil {
		latest = slot.Time
	}
	if l.again(job, latest) && errors.Is(err, singleton.ErrNotDue) {
		err = fmt.Errorf("%w: %w", ErrSameName, err)
		log := l.c.Manager.Config().Logger
		log.Warn().Err(err).Str("job", job).Msg("two jobs share a name")
	}
	if err != nil {
		return nil, err
	}
	return &lock{guard, slot, cancel}, nil
}

// again records the slot of a call of Lock. It reports whether the previous call for this job had
// the same slot.
func (l *Locker) again(job string, slot time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, asked := l.asked[job]
	l.asked[job] = slot
	return asked && before.Equal(slot) && !slot.IsZero()
}

func (l *Locker) choose(last, now time.Time) (time.Time, error) {
	if l.c.Schedule != nil {
		if !last.IsZero() {
			last = last.In(l.c.Zone)
		}
		return singleton.LatestSlot(l.c.Schedule, last, now.Add(l.c.Early).In(l.c.Zone))
	}
	if !last.IsZero() && now.Sub(last) < l.c.Gap {
		return now, fmt.Errorf("%w: it ran %v ago, less than %v", singleton.ErrNotDue, now.Sub(last),
			l.c.Gap)
	}
	return now, nil
}

type lock struct {
	guard  *distlock.TryGuard
	slot   *singleton.BegunSlot
	cancel context.CancelCauseFunc
}

// Unlock implements gocron.Lock. It records the end of the slot and releases the lock, even if the
// context has ended. It sends two commands. gocron ignores the returned error.
func (k *lock) Unlock(context.Context) error {
	defer k.cancel(nil)
	return errors.Join(k.slot.End(nil), k.guard.Release())
}
