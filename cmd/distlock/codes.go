package main

import (
	"errors"
	"fmt"

	"mongodlm/distlock"
)

// codes has the exit codes for errors that have none of their own.
type codes struct{ failed, usage int }

// The exit codes of all commands except run.
const (
	exitFailed = 1
	exitUsage  = 2
	exitWarned = 3 // from doctor: fit, with warnings
)

// The exit codes of run itself. Otherwise run exits with the code of its command. Most commands
// exit with a small number, or with more than 128. So most codes of run lie between.
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
  0    done
  1    not done: the server is unfit or cannot be reached, the database has no locks and never had,
       or the lock is not as it was seen
  2    wrong call
  3    of doctor: the server is fit, and there are warnings, such as a dead process that holds locks
`

const runExitText = `Exit codes of run itself:
  75   somebody else holds the lock, or did so for all of --wait: try again later
  110  wrong call, nothing was done
  111  the lock was lost while the command ran; the command was ended, whatever its code
  112  the command ended with 0, but the lock could not be released: it may be held until the
       takeover time has passed
  113  the lock is in use in another mode, or with another number of permits
  115  the server cannot be reached, the command was not run
  116  the command was not run for another reason, which is told
  126  the command cannot be executed; 127: there is none of that name
  128  and the number of the signal that interrupted run before the command began
Otherwise it is the code of the command, 128 and the number of the signal that killed it. What run
itself has to say it also says on the standard error, in a line that begins with "distlock run:".
`

// An exit is an error with an exit code. If err is nil, no message is printed.
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

// codeOf returns run's exit code for an error of the lock manager.
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
