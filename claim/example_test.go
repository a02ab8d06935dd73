package claim_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"mongodlm/claim"
)

// Mail is a row of the examples.
type Mail struct {
	ID  string `bson:"_id"`
	To  string
	Due time.Time
}

var errNoSuchAddress = errors.New("no such address")

// A server that is busy says after which pause it may be asked again.
type busyError struct{ pause time.Duration }

func (e busyError) Error() string { return "busy" }

func send(context.Context, Mail) error { return errNoSuchAddress }

// What a handler says of its row by the error that it returns.
func ExampleSnooze() {
	handle := func(ctx context.Context, row *claim.Row[Mail]) error {
		if wait := time.Until(row.Doc.Due); wait > 0 {
			return claim.Snooze(wait) // not yet: no attempt
		}
		err := send(ctx, row.Doc)
		var busy busyError
		switch {
		case errors.As(err, &busy):
			return claim.RetryAfter(busy.pause, err) // an attempt, and this pause
		case errors.Is(err, errNoSuchAddress):
			return claim.Discard(fmt.Errorf("mail to %s: %w", row.Doc.To, err)) // dead at once
		}
		return err // nil: done; an error: an attempt, and a pause that grows
	}
	var mails *claim.Queue[Mail] // of claim.New
	if mails != nil {
		_ = mails.Run(context.Background(), handle)
	}
}

// Rows that are dead are looked at, tried again, and removed in the end.
func ExampleList() {
	ctx, cfg := context.Background(), claim.Config{}
	var mails *mongo.Collection
	for row, err := range claim.List(ctx, mails, cfg, claim.StateDead) {
		if err != nil {
			log.Print(err)
			break
		}
		fmt.Println(row.ID, row.Attempts, row.LastError)
		if len(row.Errors) > 0 && row.LastError == "busy" {
			_, err = claim.Retry(ctx, mails, cfg, row.ID)
		}
	}
	n, err := claim.Purge(ctx, mails, cfg, claim.StateDead, 30*24*time.Hour)
	fmt.Println(n, "removed", err)
}

// A program that is told to end claims no more rows, and gives its handlers half a minute.
func ExampleQueue_Stop() {
	var mails *claim.Queue[Mail] // of claim.New
	told, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	context.AfterFunc(told, func() {
		limited, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := mails.Stop(limited); err != nil {
			log.Print(err)
		}
	})
	err := mails.Run(context.Background(), func(ctx context.Context, row *claim.Row[Mail]) error {
		return send(ctx, row.Doc)
	})
	fmt.Println(err, mails.Close(context.Background()))
}

// Whoever asks twice for the same work has it once.
func ExampleQueue_Insert() {
	var mails *claim.Queue[Mail] // of claim.New
	inserted, err := mails.Insert(context.Background(), "invoice 7", Mail{ID: "m1", To: "ann"})
	fmt.Println(inserted, err)
}
