package history_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"mongodlm/catalog/memcatalog"
	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

// A program that wants its locks to be written down hands a Log to its Manager; whoever looks for
// what happened reads it.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cfg := distlock.Config{Catalog: memcatalog.New(memcatalog.Options{})}
	past, err := history.New(ctx, cfg, history.Options{All: true})
	if err != nil {
		log.Fatal(err)
	}
	cfg.Observer = past
	manager, err := distlock.New(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := manager.Lock("reports").TryLock(ctx, distlock.Why("nightly"))
	if err != nil {
		log.Fatal(err)
	}
	_ = guard.Release()
	_ = manager.Close(ctx)
	if err := past.Close(ctx); err != nil { // writes the rest
		log.Fatal(err)
	}
	for e, err := range past.Read(ctx, history.Query{Name: "reports"}) {
		fmt.Println(e.Kind, e.Why, err)
	}
	// Output:
	// released nightly <nil>
	// acquired nightly <nil>
}
