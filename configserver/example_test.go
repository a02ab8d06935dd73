package configserver_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/configserver"
)

// A config server in a temporary folder, and the check that locks may be kept on it.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := configserver.Start(ctx, configserver.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close(ctx)
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		log.Print(err)
		return
	}
	defer client.Disconnect(ctx)

	report, err := configserver.Check(ctx, client, configserver.CheckOptions{Rounds: 5})
	fmt.Println(report.Atomic, report.Acquire, err)
	// Output: true 5 of 5 rounds with exactly one winner, 0 with several, 0 with none <nil>
}
