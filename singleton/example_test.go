package singleton_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/singleton"
)

// Run calls a function once in each interval, in one of the processes that run this code.
func ExampleRun() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	manager, err := distlock.New(ctx, distlock.Config{Catalog: memcatalog.New(memcatalog.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(context.Background())
	store := singleton.NewMemoryStore(nil) // in production: NewStore(client.Database("distlock"))

	rounds := 0
	err = singleton.Run(ctx, manager, singleton.Loop{
		Name: "cleanup", Store: store, Every: 10 * time.Millisecond,
		Do: func(ctx context.Context, guard *distlock.TryGuard) error {
			if rounds++; rounds == 3 {
				stop() // Run waits for this round
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	list, err := singleton.List(context.Background(), store)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range list {
		fmt.Println(s.Name, s.Kind, s.State, s.Rounds, "rounds, stopped:", s.Settings.Stopped)
	}
	// Output: cleanup loop done 3 rounds, stopped: false
}

// RunSlots runs each slot of a schedule once, in one of the processes that run this code. This also
// holds if their clocks differ. A schedule of github.com/robfig/cron/v3 can replace Every.
func ExampleRunSlots() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	store := singleton.NewMemoryStore(nil)
	manager, err := distlock.New(ctx, distlock.Config{Catalog: memcatalog.New(memcatalog.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	defer manager.Close(context.Background())

	var last time.Time
	err = singleton.RunSlots(ctx, manager, singleton.Slots{
		Name: "report", Store: store, Schedule: singleton.Every(20 * time.Millisecond),
		Missed: singleton.RunAll,
		Do: func(ctx context.Context, slot singleton.Slot) error {
			if !last.IsZero() {
				fmt.Println("a slot,", slot.Time.Sub(last), "after the one before")
				stop()
			}
			last = slot.Time
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: a slot, 20ms after the one before
}
