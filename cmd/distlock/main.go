// Command distlock is the operator's command line of the distributed lock.
//
//	distlock doctor                  is this server fit to keep locks, and what can it do
//	distlock locks [NAME]            who holds and who waits; of one all, and what if its holder died
//	distlock ps                      which processes ping, what they hold and wait for
//	distlock loops [NAME]            loops and schedules, or the latest rounds of one
//	distlock claims COLLECTION       rows of a queue; list, retry or remove the dead ones
//	distlock history [NAME]          the events of locks, newest first
//	distlock break NAME --fence N    free a lock by force, if it still is as you saw it
//	distlock ui                      all of that as a page, live, in a browser
//	distlock run NAME -- COMMAND     run a command while holding a lock
//	distlock completion SHELL        words and names completed by bash, zsh or fish
//	distlock serve --dir FOLDER      be a config server, for those who have none
//	distlock version                 which build this is
//
// The server is named by --uri, --uri-file or the environment variable MONGODLM_URI; passwords in
// it are never printed. Run a command with -h for its flags.
//
// # Exit codes
//
// 0 is done, 1 not done, 2 a wrong call, 3 that doctor has warnings. The command run has codes of
// its own, which codes.go lists and "distlock run -h" tells; otherwise it ends with the code of its
// command.
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
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"mongodlm/catalog"
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
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], cobra.ShellCompRequestCmd) {
		os.Stderr = nil // where package cobra tells what was typed, passwords and all
	}
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
	top := root(stdio{in, out, errOut})
	top.SetArgs(joined(args))
	c, err := top.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	e := exit{exitUsage, err}
	if errors.As(err, &e); e.err == nil {
		return e.code
	}
	fmt.Fprintf(errOut, "%s: %s\n", c.CommandPath(), catalog.RedactUserInfo(e.err.Error()))
	if c.HasParent() && (e.code == exitUsage || e.code == exitWrongCall) {
		fmt.Fprintf(errOut, "%s -h tells more\n", c.CommandPath())
	}
	return e.code
}
