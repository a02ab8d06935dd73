package election_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/election"
)

// Two processes are candidates. The first leads until it is asked to yield, and then the second
// leads.
func Example() {
	ctx := context.Background()
	store := memcatalog.New(memcatalog.Options{})
	stand := func(address string, fn election.Func) (*distlock.Manager, <-chan error) {
		manager, err := distlock.New(ctx, distlock.Config{
			Catalog: store, Poll: 10 * time.Millisecond, PollMax: 50 * time.Millisecond, // a short example
		})
		if err != nil {
			log.Fatal(err)
		}
		over := make(chan error, 1)
		go func() {
			over <- election.Run(ctx, manager, "scheduler", fn, election.Metadata(address), election.Once())
		}()
		return manager, over
	}

	leads := make(chan struct{})
	one, over1 := stand("10.0.0.1:80", func(ctx context.Context, leader *election.Leadership) error {
		close(leads)
		select {
		case <-leader.YieldRequested(): // the leader may resign
		case <-ctx.Done(): // the leader must return
		}
		fmt.Println("the first one resigns:", leader.YieldReason())
		return nil
	})
	defer one.Close(ctx)
	<-leads
	two, over2 := stand("10.0.0.2:80", func(_ context.Context, leader *election.Leadership) error {
		fmt.Println("the second one leads:", leader.Err() == nil)
		return nil
	})
	defer two.Close(ctx)

	scheduler := election.New(two, "scheduler")
	leader, err := scheduler.Leader(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("leader:", leader.Metadata)
	if err := scheduler.RequestYield(ctx, "upgrade"); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-over1, <-over2)
	// Output:
	// leader: 10.0.0.1:80
	// the first one resigns: upgrade
	// the second one leads: true
	// <nil> <nil>
}
