package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
)

func exampleManager(ctx context.Context) *distlock.Manager {
	m, err := distlock.New(ctx, distlock.Config{Catalog: memcatalog.New(memcatalog.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	return m
}

// The second caller is queued. The first caller's release grants the lock to the second caller.
func ExampleDistributedLock_Lock() {
	ctx := context.Background()
	manager := exampleManager(ctx)
	defer manager.Close(ctx)
	lock := manager.Lock("balancer")

	first, err := lock.Lock(ctx, distlock.WaitAtMost(20*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	granted := make(chan *distlock.TryGuard)
	go func() {
		second, err := lock.Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		granted <- second
	}()
	fmt.Println("released:", first.Release())
	second := <-granted
	defer second.Release()
	fmt.Println("a larger fence:", second.Fence() > first.Fence())
	// Output:
	// released: <nil>
	// a larger fence: true
}

// Readers share the lock, and a writer waits for all readers.
func ExampleShared() {
	ctx := context.Background()
	manager := exampleManager(ctx)
	defer manager.Close(ctx)
	lock := manager.Lock("catalogue")

	one, err := lock.Lock(ctx, distlock.Shared())
	if err != nil {
		log.Fatal(err)
	}
	defer one.Release()
	two, err := lock.Lock(ctx, distlock.Shared())
	if err != nil {
		log.Fatal(err)
	}
	defer two.Release()
	_, err = lock.TryLock(ctx)
	fmt.Println("a writer:", errors.Is(err, distlock.ErrHeld))
	// Output: a writer: true
}

// A semaphore limits the number of concurrent holders. All callers must use the same limit.
func ExamplePermits() {
	ctx := context.Background()
	manager := exampleManager(ctx)
	defer manager.Close(ctx)

	guard, err := manager.Lock("downloads").Lock(ctx, distlock.Permits(3))
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release()
	_, err = manager.Lock("downloads").Lock(ctx, distlock.Permits(5))
	var limit *distlock.PermitMismatchError
	fmt.Println(errors.As(err, &limit), limit.Recorded, limit.Asked)
	// Output: true 3 5
}

// LockAll acquires all locks or none. The order of the names does not matter.
func ExampleManager_LockAll() {
	ctx := context.Background()
	manager := exampleManager(ctx)
	defer manager.Close(ctx)

	all, err := manager.LockAll(ctx, []string{"shard2", "shard1"})
	if err != nil {
		log.Fatal(err)
	}
	for _, guard := range all.All() {
		fmt.Println(guard.Name(), guard.Err())
	}
	fmt.Println(all.Release())
	// Output:
	// shard1 <nil>
	// shard2 <nil>
	// <nil>
}

// Reenter returns another guard of a held lock. The last release frees the lock.
func ExampleTryGuard_Reenter() {
	ctx := context.Background()
	manager := exampleManager(ctx)
	defer manager.Close(ctx)

	outer, err := manager.Lock("balancer").TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	inner, err := outer.Reenter()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(inner.Release(), outer.Err())
	fmt.Println(outer.Release(), errors.Is(outer.Err(), distlock.ErrReleased))
	// Output:
	// <nil> <nil>
	// <nil> true
}
