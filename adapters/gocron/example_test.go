package gocronlock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-co-op/gocron/v2"

	"mongodlm/adapters/gocron"
	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/singleton"
)

// Two schedulers simulate two processes with the same job. With a Locker, only one of them runs the
// job.
func ExampleNewLocker() {
	server := memcatalog.New(memcatalog.Options{})
	store := singleton.NewMemoryStore(nil) // or singleton.NewStore(client.Database("distlock"))
	ran := make(chan string, 10)
	for _, name := range []string{"one", "the other"} {
		manager, err := distlock.New(context.Background(), distlock.Config{Catalog: server, Host: name})
		if err != nil {
			log.Fatal(err)
		}
		defer manager.Close(context.Background())
		config := gocronlock.Config{Manager: manager, Store: store, Gap: time.Hour}
		locker, err := gocronlock.NewLocker(config)
		if err != nil {
			log.Fatal(err)
		}
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
		if err != nil {
			log.Fatal(err)
		}
		_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond),
			gocron.NewTask(func() { ran <- "the job ran" }), gocron.WithName("report"))
		if err != nil {
			log.Fatal(err)
		}
		scheduler.Start()
		defer scheduler.Shutdown()
	}
	fmt.Println(<-ran)
	select {
	case <-ran:
		fmt.Println("and again")
	case <-time.After(200 * time.Millisecond):
		fmt.Println("once")
	}
	// Output:
	// the job ran
	// once
}
