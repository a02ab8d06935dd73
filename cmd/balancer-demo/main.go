// Command balancer-demo demonstrates the distributed lock. Several balancer processes share one
// lock and balance the metadata of a sharded cluster.
//
//	balancer-demo              start a config server, load a cluster, run three balancers, kill one,
//	                           stop one past its deadline, report; under a minute
//	balancer-demo load         only load the cluster into a MongoDB
//	balancer-demo balancer     run one balancer
//
// The flag -h lists the flags. The exit code of a demo is 0 if the cluster was balanced, every
// fault was survived and there was no violation. It is 2 for a usage error, and 128 plus the number
// of the signal if a signal ended the demo (Ctrl-C: 130). Otherwise it is 1.
//
// On Windows the demo kills a process, but does not stop a process.
//
// If SIGKILL or SIGPIPE ends the demo, its balancers end within half a minute, except a stopped
// balancer. The temporary folder of its config server remains.
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
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, // of a closed terminal
		syscall.SIGQUIT)
	go func() { // ends with the process
		cancel(interrupted{<-signals})
		signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT) // a second signal ends the process
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ os.Signal }

func (i interrupted) Error() string { return "ended by a signal: " + i.String() }

// code returns the exit code that a shell reports for a process that the signal ended.
func (i interrupted) code() int {
	number, _ := i.Signal.(syscall.Signal)
	return 128 + int(number)
}

// errUsage marks a usage error that package flag has already printed.
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
	case err != nil:
		if !errors.Is(err, errUsage) {
			fmt.Fprintf(errOut, "balancer-demo: %v\n", err)
		}
		return 2
	}
	ok := true
	switch command {
	case "load":
		err = load(ctx, o, out)
	case "balancer":
		err = beBalancer(ctx, o, in, out, errOut)
	default:
		ok, err = demonstrate(ctx, o, out)
		var signal interrupted
		if errors.As(context.Cause(ctx), &signal) {
			fmt.Fprintf(errOut, "balancer-demo: %v\n", signal)
			return signal.code()
		}
	}
	if err != nil {
		fmt.Fprintf(errOut, "balancer-demo: %v\n", err)
	}
	if err != nil || !ok {
		return 1
	}
	return 0
}
