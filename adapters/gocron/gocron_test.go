package gocronlock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/robfig/cron/v3"

	gocronlock "mongodlm/adapters/gocron"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/locktest"
	"mongodlm/singleton"
)

func TestMain(m *testing.M) { effort.Main(m) }

// A world is a simulated server in virtual time. It records the runs of a job.
type world struct {
	*locktest.World
	t     *testing.T
	store *singleton.MemoryStore

	mu   sync.Mutex
	runs []time.Time
	by   []int // the process of each run
}

func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, w *locktest.World) {
		test(t, &world{World: w, t: t, store: singleton.NewMemoryStore(nil)})
	})
}

func (w *world) manager() *distlock.Manager {
	w.t.Helper()
	return w.Start(nil).Manager
}

// The job of the scheduler only records its runs.
func (w *world) schedule(i int, job gocron.JobDefinition,
	opts ...gocron.SchedulerOption) gocron.Scheduler {
	w.t.Helper()
	s, err := gocron.NewScheduler(append(opts, gocron.WithLocation(time.UTC))...)
	assert.Must(w.t, err)
	_, err = s.NewJob(job, gocron.NewTask(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.runs, w.by = append(w.runs, time.Now()), append(w.by, i)
	}), gocron.WithName("report"))
	assert.Must(w.t, err)
	s.Start()
	w.t.Cleanup(func() { assert.NoErr(w.t, s.Shutdown()) })
	return s
}

// count returns the number of runs since the previous call of count.
func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.runs)
	w.runs = nil
	return n
}

func (w *world) locker(c gocronlock.Config) *gocronlock.Locker {
	w.t.Helper()
	c.Manager, c.Store = w.manager(), w.store
	return assert.Value(gocronlock.NewLocker(c))(w.t)
}

// If five processes have the same job, a Locker lets the job run once per interval, and not five
// times (gocron issue 841).
func TestLocker_Issue841_DurationJobOnStaggeredProcesses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		for i := range 5 {
			locker := w.locker(gocronlock.Config{Gap: 54 * time.Second})
			w.schedule(i, gocron.DurationJob(time.Minute), gocron.WithDistributedLocker(locker))
			time.Sleep(10 * time.Second)
		}
		time.Sleep(2*time.Minute + 5*time.Second)
		w.count()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, w.count(), 60, "the job ran %d times in an hour, want %d")
	})
}

type skewed struct {
	clockwork.Clock
	by time.Duration
}

func (s skewed) Now() time.Time { return s.Clock.Now().Add(s.by) }

// A cron job runs once at each scheduled time, although the clocks of the processes differ (gocron
// issue 841).
func TestLocker_Issue841_CronJobOnSkewedClocks(t *testing.T) {
	const hourly = "0 * * * *"
	schedule := assert.Value(cron.ParseStandard(hourly))(t)
	const tenth = 100 * time.Millisecond
	for name, skews := range map[string][]time.Duration{
		"seconds":    {0, 7 * time.Second, -7 * time.Second, 3 * tenth, -3 * tenth},
		"minutes":    {0, 20 * time.Minute, -25 * time.Minute},
		"hours":      {0, time.Hour, -time.Hour, 90 * time.Minute},
		"one ahead":  {5 * tenth},
		"none right": {time.Minute, 2 * time.Minute, -time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				time.Sleep(10 * time.Minute)
				for i, by := range skews {
					locker := w.locker(gocronlock.Config{Schedule: schedule})
					w.schedule(i, gocron.CronJob(hourly, false), gocron.WithDistributedLocker(locker),
						gocron.WithClock(skewed{clockwork.NewRealClock(), by}))
				}
				time.Sleep(140*time.Minute - time.Second) // until just before 02:30
				w.count()
				time.Sleep(6 * time.Hour)
				assert.Equal(t, w.count(), 6, "the job ran %d times in 6 hours, want %d")
			})
		})
	}
}

// Only the leader runs the job. When the leader's Elector is closed, another process becomes the
// leader.
func TestElector_OneLeader_OthersFollow(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var electors []*gocronlock.Elector
		var managers []*distlock.Manager
		for i := range 5 {
			m := w.manager()
			managers = append(managers, m)
			e := assert.Value(gocronlock.NewElector(context.Background(), m, "leader"))(t)
			t.Cleanup(func() { _ = e.Close(context.Background()) })
			electors = append(electors, e)
			w.schedule(i, gocron.DurationJob(time.Minute), gocron.WithDistributedElector(e))
			time.Sleep(10 * time.Second)
		}
		w.count()
		for range 5 {
			w.mu.Lock()
			w.by = nil
			w.mu.Unlock()
			time.Sleep(10*time.Minute + time.Second)
			leaders := 0
			for _, e := range electors {
				if err := e.IsLeader(t.Context()); err == nil {
					leaders++
				} else if !errors.Is(err, gocronlock.ErrNotLeader) {
					t.Error(err)
				}
			}
			w.mu.Lock()
			by := slices.Compact(slices.Clone(w.by))
			w.mu.Unlock()
			if n := w.count(); n != 10 || len(by) != 1 || leaders != 1 {
				t.Fatalf("%d runs on the processes %v, %d leaders; want 10, one, 1", n, by, leaders)
			}
			for _, m := range managers {
				assert.Equal(t, m.Stats().OldestWait, 0, // a follower is not a blocked waiter
					"a follower has waited for %v, want %v")
			}
			assert.Must(t, electors[by[0]].Close(t.Context()))
			synctest.Wait()
		}
		time.Sleep(10 * time.Minute)
		assert.Equal(t, w.count(), 0, "%d runs without a leader, want %d")
	})
}

type observerFunc func(distlock.Event)

func (f observerFunc) Observe(e distlock.Event) { f(e) }

// If the Manager is closed first, its Elector makes no further tries, and reports that it is not
// the leader.
func TestElector_ManagerClosed_TriesNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var refused atomic.Int32
		m := w.Start(func(cfg *distlock.Config) {
			cfg.Observer = observerFunc(func(e distlock.Event) {
				if e.Kind == distlock.EventRefused || e.Kind == distlock.EventGaveUp {
					refused.Add(1)
				}
			})
		}).Manager
		e := assert.Value(gocronlock.NewElector(context.Background(), m, "leader"))(t)
		t.Cleanup(func() { _ = e.Close(context.Background()) })
		synctest.Wait()
		assert.NoErr(t, e.IsLeader(t.Context()))
		assert.Must(t, m.Close(t.Context()))
		time.Sleep(time.Minute)
		assert.Is(t, e.IsLeader(t.Context()), gocronlock.ErrNotLeader)
		assert.Is(t, e.IsLeader(t.Context()), distlock.ErrClosed)
		assert.Equal(t, refused.Load(), 1, "%d tries after Close, want %d")
	})
}

// NewLocker and NewElector return ErrConfig for an invalid argument.
func TestNew_BadConfig(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		m := w.manager()
		for _, c := range []gocronlock.Config{
			{Store: w.store, Gap: 1}, {Manager: m, Gap: 1}, {Manager: m, Store: w.store},
			{Manager: m, Store: w.store, Gap: 1, Schedule: singleton.Every(time.Hour)},
			{Manager: m, Store: w.store, Gap: -1}, {Manager: m, Store: w.store, Gap: 1, Wait: -1},
		} {
			if _, err := gocronlock.NewLocker(c); !errors.Is(err, gocronlock.ErrConfig) {
				t.Errorf("NewLocker(%+v): %v", c, err)
			}
		}
		assert.Is(t, assert.Err(gocronlock.NewElector(t.Context(), nil, "a")), gocronlock.ErrConfig)
		assert.Is(t, assert.Err(gocronlock.NewElector(t.Context(), m, "")), gocronlock.ErrConfig)
	})
}

// singleton.RunSlots runs each slot of a robfig/cron schedule once, at its time in the zone
// Slots.Zone.
func TestCron_IsASchedule(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		schedule := assert.Value(cron.ParseStandard("30 9 * * 1-5"))(t)
		zone := time.FixedZone("there", 2*3600)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		var slots []string
		for range 3 {
			m := w.Start(func(cfg *distlock.Config) {
				cfg.Ping, cfg.Takeover = 10*time.Minute, 2*time.Hour
			}).Manager
			wg.Go(func() {
				assert.NoErr(t, singleton.RunSlots(ctx, m, singleton.Slots{
					Name: "report", Store: w.store, Schedule: schedule, Zone: zone,
					Do: func(_ context.Context, s singleton.Slot) error {
						slots = append(slots, s.Time.Format("Mon 15:04 -0700"))
						return nil
					}}))
			})
		}
		time.Sleep(4 * 24 * time.Hour) // from a Saturday to Tuesday night
		cancel()
		wg.Wait()
		if want := []string{"Mon 09:30 +0200", "Tue 09:30 +0200"}; !slices.Equal(slots, want) {
			t.Errorf("slots %q, want %q", slots, want)
		}
	})
}

type panicking struct{}

func (panicking) Next(time.Time) time.Time { panic("boom") }

// If the Schedule panics, the lock is released, and the panic reaches the caller of Lock.
func TestLocker_SchedulePanics_LockIsReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		l := w.locker(gocronlock.Config{Schedule: panicking{}})
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not reach the caller")
				}
			}()
			_, _ = l.Lock(t.Context(), "report")
		}()
		if _, err := w.manager().Lock("report").TryLock(t.Context()); err != nil {
			t.Errorf("the lock is not free: %v", err)
		}
		var none context.Context
		assert.Is(t, assert.Err(l.Lock(none, "report")), gocronlock.ErrConfig)
	})
}
