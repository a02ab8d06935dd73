package integration_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	effort.AtOnce(40) // deployment.most bounds the parallel tests of one deployment
	flag.Parse()
	if testing.Short() {
		fmt.Println("integration: left out by -short: it starts servers and breaks links for minutes")
		return 0
	}
	debug.SetGCPercent(500) // the same value as in package effort
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, d := range deployments {
		if err := d.close(ctx); err != nil {
			fmt.Printf("closing %s: %v\n", d.name, err)
			code = max(code, 1)
		}
	}
	if code != 0 {
		return code
	}
	// Neither this module nor the embedded server leaves a goroutine behind.
	if err := goleak.Find(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}
