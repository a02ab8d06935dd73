package distlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/configserver"
	"mongodlm/distlock"
)

// The whole of it: a server, a manager, a lock, work under the lock.
func Example() {
	// The context of the program: it ends with a signal, and with it the contexts of the guards.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	// A config server for people who have none. With a MongoDB, leave this out and use its URI.
	server, err := configserver.Start(ctx, configserver.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close(context.Background())

	starting, cancel := context.WithTimeout(ctx, time.Minute) // for New alone
	defer cancel()
	manager, err := distlock.New(starting, distlock.Config{
		URI:      server.URI(),
		Database: "distlock", // a database of one's own; mongos used "config"
		Ping:     time.Second,
		Takeover: 15 * time.Second, // a dead holder's locks are free after this
	})
	if err != nil {
		log.Print(err)
		return
	}
	defer manager.Close(ctx) // gives the locks back, also when ctx has ended

	guard, err := manager.Lock("reports").TryLock(ctx, distlock.Why("nightly report"))
	if errors.Is(err, distlock.ErrHeld) {
		fmt.Println("somebody else is at it:", err)
		return
	}
	if err != nil {
		log.Print(err)
		return
	}
	defer guard.Release()

	if err := report(guard.Context(), guard.Fence()); err != nil {
		log.Print(err)
	}
	// Output: reporting under the lock
}

// report ends when the lock is lost: its context does.
func report(ctx context.Context, fence int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // matches distlock.ErrLockLost
	}
	if fence > 0 { // give it to whatever the lock protects
		fmt.Println("reporting under the lock")
	}
	return nil
}

// Do acquires, works and releases in one call; it never returns nil when the lock was lost.
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

// A lock that somebody else holds is an error with the facts.
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
