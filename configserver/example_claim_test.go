package configserver_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/claim"
	"mongodlm/configserver"
	"mongodlm/distlock"
)

// Mail is a row: a document of the application.
type Mail struct {
	ID string `bson:"_id"`
	To string `bson:"to"`
}

// The workers of several processes handle the rows of a collection. Each row goes to one worker.
// Here one row fails permanently.
func Example_claim() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := configserver.Start(ctx, configserver.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close(context.Background())
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI()))
	if err != nil {
		log.Print(err)
		return
	}
	defer client.Disconnect(context.Background())
	manager, err := distlock.New(ctx, distlock.Config{Client: client, Database: "distlock"})
	if err != nil {
		log.Print(err)
		return
	}
	defer manager.Close(context.Background())

	coll := client.Database("app").Collection("mails")
	mails, err := claim.New[Mail](ctx, manager, coll, claim.Config{
		MaxAttempts: 1,
	})
	if err != nil {
		log.Print(err)
		return
	}
	if err := mails.Add(ctx, Mail{"1", "ann"}, Mail{"2", ""}, Mail{"3", "bob"}); err != nil {
		log.Print(err)
		return
	}
	ctx, stop := context.WithCancel(ctx) // in a program: signal.NotifyContext
	err = mails.Serve(ctx, 30*time.Second, func(ctx context.Context, row *claim.Row[Mail]) error {
		if row.Doc.ID == "3" {
			defer stop()
		}
		if row.Doc.To == "" {
			return errors.New("no address")
		}
		fmt.Println("mail to", row.Doc.To)
		return nil
	})
	counts, countErr := mails.Counts(context.Background())
	fmt.Println(counts.Done, "done", counts.Dead, "dead", err, countErr)
	// Output:
	// mail to ann
	// mail to bob
	// 2 done 1 dead <nil> <nil>
}
