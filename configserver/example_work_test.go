package configserver_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"mongodlm/configserver"
	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/singleton"
)

// Many processes run this code. Each round of the loop runs in one process, and one process is the
// leader.
func Example_leaderAndLoop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := configserver.Start(ctx, configserver.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close(context.Background())
	manager, err := distlock.New(ctx, distlock.Config{URI: server.URI(), Database: "distlock"})
	if err != nil {
		log.Print(err)
		return
	}
	defer manager.Close(context.Background())

	schedule := func(context.Context, int64) error {
		fmt.Println("leading")
		cancel()
		return nil
	}
	round := make(chan struct{})
	cleanUp := func(context.Context, *distlock.TryGuard) error {
		fmt.Println("cleaning up")
		close(round)
		return nil
	}
	loop, stop := context.WithCancel(ctx)
	go func() {
		<-round
		stop()
	}()
	func(ctx context.Context) {
		err = singleton.Run(ctx, manager, singleton.Loop{
			Name: "cleanup", Every: time.Minute, Do: cleanUp, // one process, one round a minute
		})
	}(loop)
	err = election.Run(ctx, manager, "scheduler", func(ctx context.Context, l *election.Leadership) error {
		return schedule(ctx, l.Fence()) // until it returns, ctx ends, or leadership is lost
	})
	if err != nil {
		log.Print(err)
	}
	// Output:
	// cleaning up
	// leading
}
