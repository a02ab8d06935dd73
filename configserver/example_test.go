package configserver_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/configserver"
	"mongodlm/distlock"
	"mongodlm/election"
	"mongodlm/singleton"
)

// Do acquires a lock, runs a function, and releases the lock.
func Example_do() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := configserver.Start(ctx, configserver.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close(context.Background())
	uri := server.URI() // or the URI of a MongoDB

	manager, err := distlock.New(ctx, distlock.Config{URI: uri, Database: "distlock"})
	if err != nil {
		log.Print(err)
		return
	}
	defer manager.Close(ctx) // gives the locks back, also when ctx has ended

	err = manager.Do(ctx, "reports", func(ctx context.Context, guard *distlock.TryGuard) error {
		return report(ctx, guard.Fence()) // ctx ends when the lock is lost
	}, distlock.Why("nightly report"), distlock.WaitAtMost(20*time.Second))
	if err != nil {
		log.Print(err)
	}
	// Output: reporting under the lock
}

// The example starts a server and a Manager, acquires a lock, and works under the lock.
func Example() {
	// A signal ends the context of the program, and with it the contexts of the guards.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	// Start an embedded config server. If a MongoDB is available, use its URI instead.
	server, err := configserver.Start(ctx, configserver.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close(context.Background())

	starting, cancel := context.WithTimeout(ctx, time.Minute) // only for New
	defer cancel()
	manager, err := distlock.New(starting, distlock.Config{
		URI:      server.URI(),
		Database: "distlock", // a separate database; mongos used "config"
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
		fmt.Println("another process is at work:", err)
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

// open starts an embedded server, a client and a Manager, as the first example of the package
// shows. The function end closes them.
func open(ctx context.Context) (client *mongo.Client, manager *distlock.Manager, end func()) {
	server, err := configserver.Start(ctx, configserver.Config{})
	if err != nil {
		log.Fatal(err)
	}
	client, err = mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		log.Fatal(err)
	}
	manager, err = distlock.New(ctx, distlock.Config{Client: client, Database: "distlock"})
	if err != nil {
		log.Fatal(err)
	}
	return client, manager, func() {
		manager.Close(context.Background())
		client.Disconnect(context.Background())
		server.Close(context.Background())
	}
}

// report does the work. It returns an error if its context has ended.
func report(ctx context.Context, fence int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // matches distlock.ErrLockLost
	}
	if fence > 0 { // pass it to the protected resource
		fmt.Println("reporting under the lock")
	}
	return nil
}

// Check tests whether a server can keep locks. This example tests the embedded server.
func ExampleCheck() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, _, end := open(ctx)
	defer end()
	report, err := configserver.Check(ctx, client, configserver.CheckOptions{Rounds: 5})
	fmt.Println(report.Atomic, report.Acquire, err)
	// Output: true 5 of 5 rounds with exactly one winner, 0 with several, 0 with none <nil>
}

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
