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

// busyError is an error of a busy server that asks for a pause.
type busyError struct{ pause time.Duration }

func (e busyError) Error() string { return "busy" }

func send(context.Context, Mail) error { return errNoSuchAddress }

// A handler decides by its error how its claim ends. After SIGTERM the handlers have half a minute
// to finish.
func ExampleQueue_Serve() {
	var mails *claim.Queue[Mail] // of claim.New
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	err := mails.Serve(ctx, 30*time.Second, func(ctx context.Context, row *claim.Row[Mail]) error {
		if wait := time.Until(row.Doc.Due); wait > 0 {
			return claim.Snooze(wait) // not yet: no attempt
		}
		err := send(ctx, row.Doc)
		var busy busyError
		switch {
		case errors.As(err, &busy):
			return claim.RetryAfter(busy.pause, err)
		case errors.Is(err, errNoSuchAddress):
			return claim.Discard(fmt.Errorf("mail to %s: %w", row.Doc.To, err))
		}
		return err // nil: done; an error: again, after a pause that grows
	})
	log.Print(err)
}

// Dead rows are listed, retried and finally removed.
func ExampleAdmin_List() {
	ctx := context.Background()
	var mails *claim.Admin // of claim.NewAdmin
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
