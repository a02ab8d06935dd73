//go:build unix

package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"mongodlm/distlock"
)

// Each error of an acquisition has its own exit code, even if it is wrapped or joined with another
// error.
func TestCodeOf_EveryErrorOfAcquiring_HasItsOwn(t *testing.T) {
	t.Parallel()
	held := &distlock.HeldError{Name: "a"}
	for want, errs := range map[int][]error{
		exitHeld: {held},
		exitLimit: {&distlock.PermitMismatchError{Name: "a"},
			errors.Join(held, distlock.ErrPermitMismatch)},
		exitLost:        {&distlock.LostError{Name: "a", Cause: errors.New("x")}},
		exitUnavailable: {distlock.ErrUnavailable, distlock.ErrNoHeartbeat, distlock.ErrOutcomeUnknown},
		exitWrongCall:   {&distlock.ConfigError{}},
		exitNotRun:      {errors.New("x"), distlock.ErrMalformed, distlock.ErrClosed},
	} {
		for _, err := range errs {
			if got := codeOf(fmt.Errorf("distlock: %w", err)); got != want {
				t.Errorf("want %d for %v, got %d", want, err, got)
			}
		}
	}
}

func TestRun_NoServer_HasItsOwnCode(t *testing.T) {
	t.Parallel()
	const noServerURI = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"
	r := cli(t, "run", "job", "--uri", noServerURI, "--", "true")
	r.want(t, exitUnavailable, "no server answers at 127.0.0.1:1")
	if n := strings.Count(r.errOut, "distlock:"); n > 0 {
		t.Errorf("%d times it says which package that comes from:\n%s", n, r.errOut)
	}
}

// If the server does not answer when the command ends, "distlock run" reports that the lock may be
// held. If the command succeeded, the exit code of "distlock run" is exitMayBeHeld.
func TestRun_ServerGoneAtTheEnd_SaysThatTheLockMayBeHeld(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		helper string
		code   int
	}{{"obedient", exitMayBeHeld}, {"polite", 7}} {
		t.Run(c.helper, func(t *testing.T) {
			t.Parallel()
			uri, shut := ownServer(t)
			args := []string{"run", "job", "--uri", uri + "&serverSelectionTimeoutMS=3000", "--"}
			out, ended := start(t.Context(), t, append(args, self(t, c.helper)...)...)
			pid := ready(t, out)
			shut()
			terminate(t, pid)
			r := await(t, ended).want(t, c.code, `lock "job" may be held until the takeover time (15m0s)`)
			if strings.Contains(r.errOut, "in the background") {
				t.Errorf("nothing goes on when the process has ended:\n%s", r.errOut)
			}
		})
	}
}

// If the server dies, "distlock run" reports that it waits for the server. It reports this while it
// waits for the lock, and also after its command has ended.
func TestRun_ServerDied_SaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	uri, shut := ownServer(t)
	begin := func(uri string, flags ...string) *program {
		t.Helper()
		args := append([]string{"run", "job", "--uri", uri}, flags...)
		return process(t, nil, append(append(args, "--"), self(t, "polite")...)...)
	}
	holds := begin(uri)
	holds.pids(1)
	waits := begin(uri+"&serverSelectionTimeoutMS=4000", "--wait", "-v")
	awaitText(t, waits.out.String, `waiting for "job": held by `)
	shut()
	holds.signal(syscall.SIGTERM)
	awaitText(t, holds.out.String, "the command has ended with 7; waiting for 127.0.0.1")
	awaitText(t, waits.out.String, `waiting for "job": no server answers at 127.0.0.1`)
}
