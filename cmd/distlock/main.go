// Command distlock is the operator's command line of the distributed lock.
//
//	distlock -h          the commands and their exit codes
//	distlock COMMAND -h  the flags, the output and the JSON fields of a command
//
// The flag --uri or --uri-file or the environment variable MONGODLM_URI names the server. The
// password in the connection string is never printed.
//
// # Limits of run
//
// If the lock is lost, "distlock run" sends SIGTERM to the process group of its command. The
// command still runs for a moment after SIGTERM, and a process outside of the group is not ended.
// The resource should therefore check the fence, which the command finds in the environment
// variable DISTLOCK_FENCE. "distlock run" exists on unix systems only.
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
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

type stdio struct {
	in          io.Reader
	out, errOut io.Writer
	command     string // the prefix of messages
}

func (s stdio) say(format string, args ...any) {
	fmt.Fprintf(s.errOut, s.command+": "+format+"\n", args...)
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return "interrupted by " + i.signal.String() }

func main() {
	if internalCommand(os.Args) {
		return
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

// notify catches signals. It skips signals that were ignored when this process started, as under
// nohup.
func notify(caught chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
}

// run is main without the signal handling. It returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	top := root(stdio{in, out, errOut, "distlock"})
	top.SetArgs(joinWait(args))
	c, err := top.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	e := exit{exitUsage, err}
	if errors.As(err, &e); e.error == nil {
		return e.code
	}
	fmt.Fprintf(errOut, "%s: %s\n", c.CommandPath(), errorText(e.error))
	if c.HasParent() && (e.code == exitUsage || e.code == exitWrongCall) {
		fmt.Fprintf(errOut, "see %s -h\n", c.CommandPath())
	}
	return e.code
}

// errorText returns the text of an error without passwords and without the prefix of the package.
func errorText(err error) string {
	return strings.TrimPrefix(catalog.RedactUserInfo(err.Error()), "distlock: ")
}

// helpFiles contains the help text of each command.
//
//go:embed help
var helpFiles embed.FS

const rootText = `
distlock is the operator's command line for the distributed lock on MongoDB.

The flag --uri or --uri-file or the environment variable ` + envURI + ` names the server,
and --database or ` + envDatabase + ` the database; its default is "` + defaultDatabase + `".

` + exitText + `The command run has its own exit codes: see distlock run -h`

type version struct{}

func (version) flags(*pflag.FlagSet) {}

func (version) accept(c call) error { return c.noArguments() }

func (version) run(_ context.Context, s stdio) error {
	module, commit := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				commit = setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				commit += ", modified"
			}
		}
	}
	_, err := fmt.Fprintf(s.out, "distlock %s\ncommit   %s\ngo       %s %s/%s\n",
		cmp.Or(module, "unknown"), commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// The exit codes of all commands except "distlock run".
const (
	exitFailed = 1
	exitUsage  = 2
	exitWarned = 3 // doctor has warnings
)

// The exit codes of "distlock run" for its own results, such as a lost lock. Otherwise "distlock
// run" exits with the code of its command. Most commands exit with a small code or with a code
// above 128, so most codes of "distlock run" lie in between.
const (
	exitHeld        = 75 // EX_TEMPFAIL of sysexits.h
	exitWrongCall   = 110
	exitLost        = 111
	exitMayBeHeld   = 112
	exitLimit       = 113
	exitUnavailable = 115
	exitNotRun      = 116
	exitNotRunnable = 126
	exitNotFound    = 127
	exitSignal      = 128
)

const exitText = `Exit codes:
  0    success
  1    failure: the server is unfit or cannot be reached, the database never had a lock, or the lock
       has changed since it was shown
  2    usage error
  3    from doctor: the server is fit, but there are warnings, such as a dead process with locks
`

const runExitText = `Exit codes of run itself:
  75   another process holds the lock, or held it for all of --wait: try again later
  110  usage error, nothing was done
  111  the lock was lost while the command ran; the command was ended, whatever its code
  112  the command ended with 0, but the lock could not be released: it may be held until the
       takeover time has passed
  113  the lock is in use in another mode, or with another number of permits
  115  the server cannot be reached, the command was not run
  116  the command was not run for another reason, which is printed
  126  the command cannot be executed; 127: it was not found
  128  plus the number of the signal that interrupted run before the command started
Otherwise it is the code of the command, or 128 plus the number of the signal that killed it. The
messages of run itself are lines on the standard error that begin with "distlock run:".
`

// An exit is an error with an exit code. Without the error, no message is printed.
type exit struct {
	code int
	error
}

func (e exit) Unwrap() error { return e.error }

// codeOf returns the exit code of "distlock run" for an error of the lock manager.
func codeOf(err error) int {
	for _, c := range []struct {
		is   error
		code int
	}{
		{distlock.ErrPermitMismatch, exitLimit},
		{distlock.ErrHeld, exitHeld},
		{distlock.ErrLockLost, exitLost},
		{distlock.ErrConfig, exitWrongCall},
		{distlock.ErrUnavailable, exitUnavailable},
		{distlock.ErrNoHeartbeat, exitUnavailable},
		{distlock.ErrOutcomeUnknown, exitUnavailable},
	} {
		if errors.Is(err, c.is) {
			return c.code
		}
	}
	return exitNotRun
}
