package distlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"mongodlm/distlock"
)

// Twenty processes of a deploy start concurrently. Some are killed during the migrations, and one
// hangs. All living processes continue after the migrations, which end exactly once. The migrations
// begin once more for each killed or hung process.
func TestLease_TwentyProcessesOfADeploy_MigrateOnce(t *testing.T) {
	const processes, steps, step = 20, 6, 20 * time.Second
	for name, c := range map[string]struct{ killed, hung int }{
		"NobodyDies": {}, "OneIsKilled": {killed: 1}, "OneHangs": {hung: 1},
		"TwoAreKilledOneHangs": {killed: 2, hung: 1},
	} {
		runInBubble(t, name, func(t *testing.T, w *world) {
			var mu sync.Mutex // guards the variables below
			begun, ended, wentOn := 0, 0, 0
			migrated := false
			migrate := func(p *proc, g *distlock.TryGuard) error {
				mu.Lock()
				begun++
				n := begun
				mu.Unlock()
				for i := range steps {
					time.Sleep(step)
					if i == steps/2 && n <= c.killed {
						p.kill()
						return errKilled
					}
					if i == steps/2 && n <= c.killed+c.hung {
						time.Sleep(time.Hour)
					}
					if err := g.Renew(t.Context()); err != nil {
						return err
					}
				}
				mu.Lock()
				defer mu.Unlock()
				migrated = true
				ended++
				return nil
			}
			start := func(p *proc) {
				err := p.Do(t.Context(), "migrations", func(_ context.Context, g *distlock.TryGuard) error {
					mu.Lock()
					done := migrated
					mu.Unlock()
					if done {
						return nil
					}
					return migrate(p, g)
				}, distlock.Lease(lifeTime))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, errKilled): // the process was killed
					return
				case err != nil && !errors.Is(err, distlock.ErrLockLost):
					t.Error(err)
				case !migrated:
					t.Error("it goes on before the migrations are done")
				}
				wentOn++
			}
			began := time.Now()
			var all sync.WaitGroup
			var deploy []*proc
			for range processes {
				deploy = append(deploy, w.start(nil))
			}
			for _, p := range deploy {
				all.Go(func() { start(p) })
			}
			all.Wait()
			if begun != c.killed+c.hung+1 || ended != 1 || wentOn != processes-c.killed {
				t.Errorf("migrations began %d times and ended %d times, %d processes went on", begun, ended,
					wentOn)
			}
			again := steps*step + lifeTime + 2*pingTime
			limit := steps*step + time.Duration(c.killed+c.hung)*again + time.Minute
			if took := time.Since(began); c.hung == 0 && took > limit {
				t.Errorf("took %v, want at most %v", took, limit)
			}
		})
	}
}

var errKilled = errors.New("killed")
