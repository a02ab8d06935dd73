package configserver_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/claim"
)

// Event is a row that is due at a time.
type Event struct {
	ID        string    `bson:"_id"`
	Locked    bool      `bson:"locked"` // set by a person to delay it
	ExecuteAt time.Time `bson:"execute_at"`
}

// A row is handled when the server's clock has passed the time in its field execute_at. Rows are
// handled in the order of this field. Rows with locked = true are skipped. In SQL this is the query
// "where locked = false and execute_at < NOW() order by execute_at for update skip locked".
func Example_dueRows() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, manager, end := open(ctx) // as in the first example of the package
	defer end()

	coll := client.Database("app").Collection("events")
	events, err := claim.New[Event](ctx, manager, coll, claim.Config{
		Filter: bson.D{{Key: "locked", Value: false}},
		Due:    "execute_at", // not before the server's clock has passed it, and in that order
	})
	if err != nil {
		log.Print(err)
		return
	}
	now := time.Now()
	err = events.Add(ctx, Event{"soon", false, now.Add(200 * time.Millisecond)},
		Event{"overdue", false, now.Add(-time.Hour)}, Event{"locked", true, now},
		Event{"tomorrow", false, now.Add(24 * time.Hour)}, Event{"due", false, now})
	if err != nil {
		log.Print(err)
		return
	}

	ctx, stop := context.WithCancel(ctx) // in a program: signal.NotifyContext
	execute := func(_ context.Context, event Event, _ int64) error {
		fmt.Println(event.ID)
		if event.ID == "soon" {
			stop()
		}
		return nil
	}
	err = events.Serve(ctx, 30*time.Second, func(ctx context.Context, row *claim.Row[Event]) error {
		return execute(ctx, row.Doc, row.Fence()) // nil: done; an error: again, after a pause
	})
	counts, countErr := events.Counts(context.Background())
	fmt.Println(counts.Done, "done", counts.Later, "later", err, countErr)
	// Output:
	// overdue
	// due
	// soon
	// 3 done 1 later <nil> <nil>
}
