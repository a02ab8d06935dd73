package gocronlock_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	gocronlock "mongodlm/adapters/gocron"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
	"mongodlm/singleton"
)

// A report is a job whose task is a method value. All reports have the same default name.
type report struct{ done func() }

func (r *report) run() { r.done() }

// If two jobs have the same name, only one of them runs, and the other gets ErrSameName.
func TestLocker_TwoJobsOfOneName_IsAnError(t *testing.T) {
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprint(named), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				var log assert.Log
				m := w.Start(func(c *distlock.Config) { c.Logger = zerolog.New(&log) }).Manager
				l := assert.Value(gocronlock.NewLocker(gocronlock.Config{Manager: m, Store: w.store,
					Schedule: singleton.Every(time.Minute)}))(t)
				s := assert.Value(gocron.NewScheduler(gocron.WithLocation(time.UTC),
					gocron.WithDistributedLocker(l)))(t)
				defer func() { _ = s.Shutdown() }()
				var mu sync.Mutex
				runs, same := map[string]int{}, 0
				for _, of := range []string{"sales", "stock"} {
					one := &report{func() {
						mu.Lock()
						defer mu.Unlock()
						runs[of]++
					}}
					opts := []gocron.JobOption{gocron.WithEventListeners(gocron.AfterLockError(
						func(_ uuid.UUID, _ string, err error) {
							mu.Lock()
							defer mu.Unlock()
							if errors.Is(err, gocronlock.ErrSameName) && errors.Is(err, singleton.ErrNotDue) {
								same++
							}
						}))}
					if named {
						opts = append(opts, gocron.WithName(of))
					}
					minutely, task := gocron.CronJob("* * * * *", false), gocron.NewTask(one.run)
					assert.Value(s.NewJob(minutely, task, opts...))(t)
				}
				s.Start()
				time.Sleep(10*time.Minute + time.Second)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				logged := strings.Count(log.String(), "two jobs share a name")
				switch {
				case named && (runs["sales"] != 10 || runs["stock"] != 10 || same > 0 || logged > 0):
					t.Errorf("runs %v, %d errors, %d in the log", runs, same, logged)
				case !named && (runs["sales"]+runs["stock"] != 10 || same != 10 || logged != 10):
					t.Errorf("of one name: runs %v, %d errors, %d in the log", runs, same, logged)
				}
			})
		})
	}
}
