package distlock_test

import (
	"context"
	"fmt"
	"log"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
)

// An Inspector lists and breaks locks for an operator. It cannot hold a lock.
func ExampleInspector() {
	ctx := context.Background()
	store := memcatalog.New(memcatalog.Options{})
	manager, err := distlock.New(ctx, distlock.Config{Catalog: store})
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	guard, err := manager.Lock("balancer").TryLock(ctx, distlock.Why("stuck round"))
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release()

	inspector, err := distlock.NewInspector(ctx, distlock.Config{Catalog: store})
	if err != nil {
		log.Fatal(err)
	}
	defer inspector.Close(ctx)
	for lock, err := range inspector.Locks(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(lock.Name, lock.Held, lock.Why)
		now, err := inspector.Break(ctx, lock.Name, lock.Fence, "its process hangs", lock.Session)
		fmt.Println("free:", len(now) == 1 && !now[0].Held, err)
	}
	// Output:
	// balancer true stuck round
	// free: true <nil>
}
