// Command distlock is the operator's command line of the distributed lock.
//
//	distlock doctor                  check whether this server is suitable for locks
//	distlock locks [NAME]            holders and waiters; all details of one lock, with a forecast
//	distlock ps                      processes that ping, with their locks and queue entries
//	distlock loops [NAME]            loops and schedules, or the latest rounds of one
//	distlock claims [COLLECTION]     queues, or the rows of one; list, retry or remove dead rows
//	distlock history [NAME]          the events of locks, newest first
//	distlock break NAME --fence N    free a lock by force, if it is unchanged
//	distlock ui                      all of that as a live page in a browser
//	distlock run NAME -- COMMAND     run a command while holding a lock
//	distlock completion SHELL        completion of words and names in bash, zsh or fish
//	distlock serve --dir FOLDER      run a config server, where there is no MongoDB
//	distlock version                 the version of this build
//
// The server is named by --uri, --uri-file or the environment variable MONGODLM_URI; passwords in
// it are never printed. Run a command with -h for its flags.
//
// # Exit codes
//
// 0 is success, 1 is failure, 2 is a usage error, and 3 means that doctor has warnings. The command
// run has other codes, listed in codes.go and by "distlock run -h"; otherwise it ends with the code
// of its command.
//
// # Limits of run
//
// A command continues for a moment after SIGTERM, and a process that has left the process group is
// not ended. Let the resource check the fence, which the command finds in DISTLOCK_FENCE. The
// command run exists on unix systems only.
package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"mongodlm/catalog"
)

type stdio struct {
	in          io.Reader
	out, errOut io.Writer
}

func (s stdio) say(format string, args ...any) {
	fmt.Fprintf(s.errOut, "distlock run: "+format+"\n", args...)
}

// interactive reports whether input and output are terminals, not files or pipes.
func (s stdio) interactive() bool { return isTerminal(s.in) && isTerminal(s.out) }

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// interrupted is the cause of a context that a signal ended.
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
		signal.Stop(signals) // a second signal ends the process immediately, unless run forwards it
		cancel(interrupted{s})
	}()
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], cobra.ShellCompRequestCmd) {
		os.Stderr = nil // package cobra logs the typed words there, including passwords
	}
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// notify catches signals. It skips signals that this process ignores from its start, as under
// nohup.
func notify(caught chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
}

// run runs the whole program, except the signal handling. It returns the exit code.
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
		fmt.Fprintf(errOut, "see %s -h\n", c.CommandPath())
	}
	return e.code
}

// helpFiles has the help text of each command.
//
//go:embed help
var helpFiles embed.FS

func helpOf(name string) string {
	text, err := helpFiles.ReadFile(path.Join("help", name+".txt"))
	if err != nil {
		panic(err) // the text is part of the program
	}
	return string(text)
}

const rootText = `
distlock is the operator's command line of the distributed lock on MongoDB.

The server is named by --uri, --uri-file or the environment variable ` + envURI + `, the
database by --database or ` + envDatabase + `; it is "` + defaultDatabase + `" otherwise.

` + exitText + `The command run has exit codes of its own: distlock run -h`

type version struct{}

func (version) flags(*pflag.FlagSet) {}

func (version) accept(c call) error { return c.nothing() }

func (version) secrets() string { return "" }

func (version) run(_ context.Context, s stdio) error {
	module, commit := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				commit = setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				commit += ", changed since"
			}
		}
	}
	_, err := fmt.Fprintf(s.out, "distlock %s\ncommit   %s\ngo       %s %s/%s\n",
		cmp.Or(module, "unknown"), commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
