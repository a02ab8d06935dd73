// Command distlock is the operator's command line of the distributed lock.
//
//	distlock doctor                  is this server fit to keep locks, and what can it do
//	distlock locks                   who holds what, why, since when, how old is the ping
//	distlock waiters [NAME]          who waits for what, in which place, since when
//	distlock break NAME --fence N    free a lock by force, if it still is as you saw it
//	distlock run NAME -- COMMAND     run a command while holding a lock
//	distlock serve --dir FOLDER      be a config server, for those who have none
//
// The server is named by --uri or by the environment variable MONGODLM_URI; passwords in it are
// never printed. Run a command with -h for its flags.
//
// # Exit codes
//
//	0    done; for run: the command ended with 0
//	1    not done: the server is unfit or unreachable, the lock was not as seen, it was lost, or it
//	     is in use with another number of permits
//	2    wrong call
//	75   run: somebody else holds the lock, or waiting for it would be a deadlock; try again later
//	     (EX_TEMPFAIL of sysexits.h)
//	126  run: the command cannot be executed; 127: there is none of that name
//
// Otherwise run ends with the code of its command, 128 plus the signal when that was killed by one
// or when run was interrupted before it began. A command whose lock was lost counts as 1 whatever
// it ended with itself.
//
// # What run does not promise
//
// Whoever kills distlock with SIGKILL, or stops it, leaves the command running without a heartbeat
// and without anybody who would end it. And a command that was told to end works on for a moment.
// Let what it changes check the fence, which it finds in DISTLOCK_FENCE.
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
)

// Exit codes; the package comment tells when.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitHeld        = 75
	exitNotRunnable = 126
	exitNotFound    = 127
	exitSignal      = 128
)

// stdio is where a command reads and writes.
type stdio struct {
	in          io.Reader
	out, errOut io.Writer
}

// An exit is an error that carries its own exit code. Without err nothing more is to be said.
type exit struct {
	code int
	err  error
}

func (e exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exit) Unwrap() error { return e.err }

// interrupted is the cause with which the context ends when a signal asked for it.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return "interrupted by " + i.signal.String() }

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	go func() { // ends with the process
		s, _ := (<-signals).(syscall.Signal)
		signal.Stop(signals) // a second one ends the process at once, unless run forwards it
		cancel(interrupted{s})
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// notify catches signals. Those that this process was started to ignore, as by nohup, stay ignored.
func notify(caught chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
}

// run is the whole program but for the signals. It returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	if len(args) == 0 {
		help(errOut)
		return exitUsage
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		help(out)
		return 0
	}
	topic, ok := find(args[0])
	if !ok {
		fmt.Fprintf(errOut, "distlock: there is no command %q; the commands are %s\n",
			shown(redact(args[0], ""), 60), names())
		return exitUsage
	}
	secrets, err := topic.perform(ctx, args[1:], stdio{in, out, errOut})
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	code := exitFailed
	if e := (exit{}); errors.As(err, &e) {
		code = e.code
		if e.err == nil {
			return code
		}
	}
	text := strings.TrimPrefix(redact(err.Error(), secrets), "distlock: ")
	fmt.Fprintf(errOut, "distlock %s: %s\n", topic.name, text)
	if code == exitUsage {
		fmt.Fprintf(errOut, "distlock %s -h tells more\n", topic.name)
	}
	return code
}
