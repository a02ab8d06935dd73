package configserver_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"mongodlm/claim"
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
	client, manager, end := open(ctx) // as in the first example of the package
	defer end()

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
