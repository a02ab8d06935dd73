package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
)

// Twenty processes start at the same time. One process runs the migrations and renews its lease
// before each migration. If it dies or hangs, the next process in the queue runs the migrations.
func ExampleLease() {
	ctx := context.Background()
	store := memcatalog.New(memcatalog.Options{})
	var migrated atomic.Bool // in production this flag is in the database
	var runs, ready atomic.Int32

	start := func() error {
		manager, err := distlock.New(ctx, distlock.Config{Catalog: store})
		if err != nil {
			return err
		}
		defer manager.Close(ctx)
		err = manager.Do(ctx, "migrations", func(ctx context.Context, g *distlock.TryGuard) error {
			if migrated.Load() {
				return nil
			}
			runs.Add(1)
			for range 5 {
				if err := errors.Join(ctx.Err(), g.Renew(ctx)); err != nil {
					return err // too late: another process may run them
				}
				// run one migration here, in less than 45 s
			}
			migrated.Store(true)
			return nil
		}, distlock.Lease(time.Minute))
		ready.Add(1)
		return err
	}
	var processes sync.WaitGroup
	for range 20 {
		processes.Go(func() {
			if err := start(); err != nil {
				log.Fatal(err)
			}
		})
	}
	processes.Wait()
	fmt.Println("migrations ran", runs.Load(), "time,", ready.Load(), "processes are ready")
	// Output: migrations ran 1 time, 20 processes are ready
}
