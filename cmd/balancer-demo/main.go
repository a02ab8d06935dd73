// Command balancer-demo shows the distributed lock at work: several balancer processes, one lock,
// a sharded cluster's metadata that gets balanced.
//
//	balancer-demo              start a config server, load a cluster, run three balancers, kill one,
//	                           stop one past its deadline, report; under a minute
//	balancer-demo load         only load the cluster into a MongoDB
//	balancer-demo balancer     be one balancer
//
// Run it with -h for the flags. The exit code is 0 when the cluster was balanced, every fault was
// survived and nothing was violated; 1 when not, with the evidence; 2 for a wrong call.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// errUsage marks an error that is already printed with the flags.
var errUsage = errors.New("usage")

func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	command := "demo"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	o, err := parse(command, args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	case err != nil:
		fmt.Fprintf(errOut, "balancer-demo: %v\n", err)
		return 2
	}
	ok := true
	switch command {
	case "load":
		err = load(ctx, o, out)
	case "balancer":
		err = beBalancer(ctx, o, in, out)
	default:
		ok, err = demonstrate(ctx, o, out)
	}
	if err != nil {
		fmt.Fprintf(errOut, "balancer-demo: %v\n", err)
		return 1
	}
	if !ok {
		return 1
	}
	return 0
}
