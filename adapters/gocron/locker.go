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

// ErrConfig is matched by the errors of NewLocker and NewElector. The text names the field.
var ErrConfig = errors.New("gocronlock: bad configuration")

// Config has the lock and the store of a Locker, and the least time between runs: Schedule or Gap.
type Config struct {
	// Manager is this process. Required.
	Manager *distlock.Manager
	// Store has the records of the jobs and their pause switch, see package singleton. Required.
	Store singleton.Store
	// Schedule is that of the jobs, for jobs that are due at times of the day, the same on all
	// processes: each of its slots runs once. A schedule of github.com/robfig/cron/v3 is one.
	Schedule singleton.Schedule
	// Gap is for jobs of gocron.DurationJob, which are due at other times on each process: a run
	// begins no sooner than Gap after the one before began. Their duration less a tenth is good:
	// with the whole duration a timer that fires a moment too soon waits for the next.
	Gap time.Duration
	// Early is the amount by which the clock of a process may be ahead of the server's while it
	// still gets the slot that it is due for. Default 1 s. Only with Schedule.
	Early time.Duration
	// Zone is the time zone of the times that Schedule is given. Default UTC; gocron's own default is
	// time.Local, see gocron.WithLocation.
	Zone *time.Location
	// Wait is the time for which a job waits for the lock: another process may hold it briefly to
	// find that the job has run. Default 1 s. While the job runs elsewhere, the wait ends with
	// distlock.ErrHeld.
	Wait time.Duration
}

// ErrSameName is matched by an error of Lock, besides singleton.ErrNotDue, if this Locker was asked
// for the same slot before: two jobs of the process share the name, as the jobs of one method value
// or closure do without gocron.WithName, and only one of them would run. Or one job is due more
// often than Config.Schedule or Gap allows.
var ErrSameName = errors.New("gocronlock: a job of this name has asked for the slot already; " +
	"give each job a name of its own by gocron.WithName, and let none be due more often than " +
	"Schedule or Gap says")

// A Locker is a gocron.Locker: for gocron.WithDistributedLocker, if Schedule or Gap holds for all
// jobs, or one for each job with gocron.WithDistributedJobLocker. Safe for concurrent use.
type Locker struct {
	c Config

	mu    sync.Mutex           // guards asked
	asked map[string]time.Time // the slot for which a job of this name asked last
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker. No I/O. Errors: ErrConfig.
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

// Lock implements gocron.Locker: it acquires the lock of the job's name and begins the slot. If it
// returns an error the job does not run, and gocron.AfterLockError gets the error:
// singleton.ErrNotDue when the job has run, or is stopped in the settings, with ErrSameName when
// another job of this process has its name; distlock.ErrHeld when it runs elsewhere; other errors
// of the lock and the store. Five commands.
func (l *Locker) Lock(ctx context.Context, job string) (_ gocron.Lock, err error) {
	if ctx == nil {
		return nil, fmt.Errorf("%w: the context is nil", ErrConfig)
	}
	// The context of gocron ends with the scheduler, and the job's end is to be recorded after that.
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
	defer func() { // also when the Schedule panics
		if slot == nil {
			err = errors.Join(err, guard.Release())
			cancel(nil)
		}
	}()
	var latest time.Time // slot that was begun
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

// again records the slot that a job has asked for, and reports whether a job of that name had
// before.
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

// Unlock implements gocron.Lock: it records the end and releases, also when ctx has ended. gocron
// drops the error.
func (k *lock) Unlock(context.Context) error {
	defer k.cancel(nil)
	return errors.Join(k.slot.End(nil), k.guard.Release())
}
