// Command bench measures the cost of locks on a server. It first measures the round trip and the
// least write of one client. The least write is one update of one document, journaled by a
// majority. Then it measures a lock that is acquired and released, a lock that two Managers hand to
// each other, and rows that 16 workers claim and complete. It works in a new database named
// distlock_bench_..., and finally drops this database.
//
//	go run ./cmd/bench --uri URI [--for 1s] [--json]
//
// Without --uri, the command reads the connection string from the environment variable
// MONGODLM_URI. The exit code is 0 if all measurements and the drop of the database succeed. It is
// 2 for a usage error, and 1 for any other failure.
//
// With --json, the command prints one object. The field "server" names the server. The field
// "figures" contains one object for each measurement, with the fields "what", "count", "perSecond",
// "medianMS" and "leastWrites". If several operations run at a time, "medianMS" is the mean. The
// value of "leastWrites" is "medianMS" divided by the "medianMS" of the least write.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the signal handling. It returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	v := &bench{database: "distlock_bench_" + bson.NewObjectID().Hex()}
	err := v.accept(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(errOut, "bench: %s\n", catalog.RedactUserInfo(err.Error()))
		return 2
	}
	if err := v.run(ctx, out, errOut); err != nil {
		fmt.Fprintf(errOut, "bench: %s\n", catalog.RedactUserInfo(err.Error()))
		return 1
	}
	return 0
}

// accept parses and checks the command line. An error may contain a password, so the caller must
// redact it.
func (v *bench) accept(args []string, errOut io.Writer) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the flag set repeats values, and a value may be a password
	f.StringVar(&v.uri, "uri", "", "MongoDB connection `string`; default: MONGODLM_URI")
	f.DurationVar(&v.each, "for", time.Second, "`time` of each measurement, 100ms to 10m")
	f.BoolVar(&v.json, "json", false, "print the figures as JSON")
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		f.SetOutput(errOut)
		f.Usage()
	}
	if v.uri == "" {
		v.uri = os.Getenv("MONGODLM_URI")
	}
	switch {
	case err != nil:
		return err
	case f.NArg() > 0:
		return errors.New("unexpected argument; flags begin with --")
	case v.each < 100*time.Millisecond || v.each > 10*time.Minute:
		return fmt.Errorf("--for is %v, must be 100ms to 10m", v.each)
	case v.uri == "":
		return errors.New("--uri is missing: give a MongoDB connection string, or set MONGODLM_URI")
	}
	opts := options.Client().ApplyURI(v.uri)
	if err := opts.Validate(); err != nil {
		return fmt.Errorf("invalid connection string (--uri): %w", err)
	}
	v.hosts = catalog.Printable(strings.Join(opts.Hosts, ","), 200)
	return nil
}
