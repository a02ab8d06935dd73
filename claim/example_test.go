package claim_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"mongodlm/claim"
)

// Mail is the type of the rows in the examples.
type Mail struct {
	ID  string `bson:"_id"`
	To  string
	Due time.Time
}

var errNoSuchAddress = errors.New("no such address")

// busyError is the error of a busy server that asks its client to wait.
type busyError struct{ pause time.Duration }

func (e busyError) Error() string { return "busy" }

func send(context.Context, Mail) error { return errNoSuchAddress }

// The error that a handler returns determines how its claim ends. After SIGTERM the handlers have
// half a minute to finish.
func ExampleQueue_Serve() {
	var mails *claim.Queue[Mail] // returned by claim.New
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	err := mails.Serve(ctx, 30*time.Second, func(ctx context.Context, row *claim.Row[Mail]) error {
		if wait := time.Until(row.Doc.Due); wait > 0 {
			return claim.Snooze(wait) // not due; the attempt does not count
		}
		err := send(ctx, row.Doc)
		var busy busyError
		switch {
		case errors.As(err, &busy):
			return claim.RetryAfter(busy.pause, err)
		case errors.Is(err, errNoSuchAddress):
			return claim.Discard(fmt.Errorf("mail to %s: %w", row.Doc.To, err))
		}
		return err // nil: the row is done; another error: the row is retried
	})
	log.Print(err)
}

// An operator retries some dead rows, and then removes old dead rows.
func ExampleAdmin_List() {
	ctx := context.Background()
	var mails *claim.Admin // returned by claim.NewAdmin
	for row, err := range mails.List(ctx, claim.StateDead) {
		if err != nil {
			log.Print(err)
			break
		}
		if row.LastError == "busy" {
			_, err = mails.Retry(ctx, row.ID)
			log.Print(err)
		}
	}
	n, err := mails.Purge(ctx, claim.StateDead, 30*24*time.Hour)
	fmt.Println(n, "removed", err)
}
