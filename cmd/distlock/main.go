// Command distlock is the operator's command line of the distributed lock.
//
//	distlock doctor                  is this server fit to keep locks, and what can it do
//	distlock locks [NAME]            who holds what, why, for how long, how old is the ping
//	distlock waiters [NAME]          who waits for what, in which place, since when
//	distlock show NAME               all of one lock, and what if its holder died now
//	distlock ps                      which processes ping, what they hold and wait for
//	distlock watch                   locks and lines, live
//	distlock loops, claims           what packages singleton and claim have in the database
//	distlock history [NAME]          what happened to the locks, newest first
//	distlock break NAME --fence N    free a lock by force, if it still is as you saw it
//	distlock run NAME -- COMMAND     run a command while holding a lock
//	distlock bench                   how fast locks are here, in a database that it drops
//	distlock completion SHELL        words and names completed by bash, zsh or fish
//	distlock serve --dir FOLDER      be a config server, for those who have none
//	distlock version                 which build this is
//
// The server is named by --uri, --uri-file or the environment variable MONGODLM_URI; passwords in
// it are never printed. Run a command with -h for its flags.
//
// # Exit codes
//
// 0 is done, 1 not done, 2 a wrong call. The command run has codes of its own, which codes.go lists
// and "distlock run -h" tells; otherwise it ends with the code of its command.
//
// # What run does not promise
//
// A command that was told to end works on for a moment, and what has left its process group is not
// ended. Let what it changes check the fence, which it finds in DISTLOCK_FENCE. The command run
// exists on unix systems only.
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

	"golang.org/x/term"
)

// stdio is where a command reads and writes.
type stdio struct {
	in          io.Reader
	out, errOut io.Writer
}

// say tells the operator something beside the result.
func (s stdio) say(format string, args ...any) {
	fmt.Fprintf(s.errOut, "distlock run: "+format+"\n", args...)
}

// interactive reports whether a person at a terminal types and reads, and no pipe is between.
func (s stdio) interactive() bool { return isTerminal(s.in) && isTerminal(s.out) }

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// interrupted is the cause with which the context ends when a signal asked for it.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return "interrupted by " + i.signal.String() }

func main() {
	if code, was := hidden(os.Args); was {
		os.Exit(code)
	}
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
	case askWord:
		offer(ctx, strings.Join(args[1:], " "), stdio{in, out, errOut})
		return 0
	}
	if args[0] == "study" {
		fmt.Fprintln(errOut, "distlock study: it is a command of its own: go run ./study, in a checkout of this module")
		return exitUsage
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
	code := topic.codes.failed
	if e := (exit{}); errors.As(err, &e) {
		code = e.code
		if e.err == nil {
			return code
		}
	}
	text := strings.TrimPrefix(redact(err.Error(), secrets), "distlock: ")
	fmt.Fprintf(errOut, "distlock %s: %s\n", topic.name, text)
	if code == topic.codes.usage {
		fmt.Fprintf(errOut, "distlock %s -h tells more\n", topic.name)
	}
	return code
}
