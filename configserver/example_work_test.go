package configserver_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/singleton"
)

// Many processes run this code. Each round of the loop runs in one process, and one process is the
// leader.
func Example_leaderAndLoop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, manager, end := open(ctx) // as in the first example of the package
	defer end()

	loop, stop := context.WithCancel(ctx)
	cleanUp := func(context.Context, *distlock.TryGuard) error {
		fmt.Println("cleaning up")
		stop()
		return nil
	}
	var err error
	func(ctx context.Context) {
		err = singleton.Run(ctx, manager, singleton.Loop{
			Name: "cleanup", Every: time.Minute, Do: cleanUp, // one process, one round a minute
		})
	}(loop)
	if err != nil {
		log.Print(err)
		return
	}
	schedule := func(context.Context, int64) error {
		fmt.Println("leading")
		cancel()
		return nil
	}
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
