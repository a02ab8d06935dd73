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

// Do acquires a lock, calls a function and releases the lock. If the lock is lost meanwhile, Do
// returns an error.
func ExampleManager_Do() {
	ctx := context.Background()
	manager, err := distlock.New(ctx, distlock.Config{Catalog: memcatalog.New(memcatalog.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(ctx)
	err = manager.Do(ctx, "balancer", func(ctx context.Context, g *distlock.TryGuard) error {
		fmt.Println("holding", g.Name())
		return nil
	}, distlock.Why("doing balance round"), distlock.WaitAtMost(20*time.Second))
	fmt.Println(err)
	// Output:
	// holding balancer
	// <nil>
}

// A HeldError contains the facts about the holder.
func ExampleHeldError() {
	ctx := context.Background()
	store := memcatalog.New(memcatalog.Options{})
	one, err := distlock.New(ctx, distlock.Config{Catalog: store})
	if err != nil {
		log.Fatal(err)
	}
	defer one.Close(ctx)
	two, err := distlock.New(ctx, distlock.Config{Catalog: store})
	if err != nil {
		log.Fatal(err)
	}
	defer two.Close(ctx)

	guard, err := one.Lock("balancer").TryLock(ctx, distlock.Why("doing balance round"))
	if err != nil {
		log.Fatal(err)
	}
	defer guard.Release()
	_, err = two.Lock("balancer").TryLock(ctx)
	var held *distlock.HeldError
	if errors.As(err, &held) {
		fmt.Println(held.Name, "is held:", held.Why, "- by ourselves:", held.Self)
	}
	// Output: balancer is held: doing balance round - by ourselves: false
}
