//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mongodlm/distlock"
)

func TestRun_Modes_ShareAndQueue(t *testing.T) {
	b := newBase(t)
	out, ended := start(t.Context(), t, b.runArgs("--permits 2 --why first", "polite")...)
	ready(t, out)
	b.run("--permits 2", "env", "0").want(t, 0, "DISTLOCK_NAME=job")
	for _, other := range []string{"--permits 3", "--shared", ""} {
		b.run(other+" --wait 1m", "env", "0").
			want(t, exitLimit, "in use as a semaphore of 2 permits", "must request the same")
	}
	out2, ended2 := start(t.Context(), t, b.runArgs("--permits 2 --why second", "polite")...)
	ready(t, out2)
	third := b.run("--permits 2", "env", "0").
		want(t, exitHeld, `2 of 2 permits are held, one by `, b.lock("job").Process)
	waited := b.refused(100*time.Millisecond, "--permits 2").
		want(t, exitHeld, `2 of 2 permits are held, one by `)
	if strings.Contains(waited.errOut, "in the queue") { // it was the only waiter
		t.Errorf("it counts itself:\n%s", waited.errOut)
	}
	if n := strings.Count(third.errOut, b.lock("job").Process); n != 1 {
		t.Errorf("the process id is printed %d times:\n%s", n, third.errOut)
	}
	b.signalled(out, ended)
	b.signalled(out2, ended2)

	out, ended = start(t.Context(), t, b.runArgs("--shared --why reading", "polite")...)
	ready(t, out)
	b.run("--shared", "env", "0").want(t, 0)
	b.run("", "env", "0").want(t, exitHeld, "reading")
	_, waiter := start(t.Context(), t, b.runArgs("--wait 1m --why writing", "env", "5")...)
	eventually(t, "a process is queued", func() bool { return len(b.lock("job").Waiters) == 1 })
	b.cli("locks").want(t, 0, "job", "1", "exclusive", "writing")
	b.cli("locks").want(t, 0, "shared", "reading")
	b.signalled(out, ended)
	await(t, waiter).want(t, 5)
}

// signalled sends SIGTERM to a helper of kind "polite" and waits until it exits.
func (b *base) signalled(out *screen, ended <-chan result) {
	b.t.Helper()
	terminate(b.t, pidAfter(out.String(), "ready"))
	await(b.t, ended).want(b.t, 7, "got terminated")
}

// If the wait of "distlock run" ends before it has read the holder, the error reports that the
// holder is unknown.
func TestRunner_Refused_HolderUnknown_IsSaid(t *testing.T) {
	t.Parallel()
	err := (&runner{}).refused(t.Context(),
		&distlock.HeldError{Name: "job", PingAge: -1, Reason: "the time was up first"})
	want := `acquire "job": held: the time was up first`
	if e, ok := err.(exit); !ok || e.code != exitHeld || errorText(e) != want {
		t.Errorf("want exit %d and\n%s\ngot %#v\n%v", exitHeld, want, err, err)
	}
}

// With -v, "distlock run" prints the holder and its own place in the queue while it waits. A signal
// ends the wait.
func TestRun_Waiting_PrintsTheHolderAndThePlace(t *testing.T) {
	b := newBase(t)
	b.hold("job", 3)
	ctx, interrupt := context.WithCancelCause(t.Context())
	out, ended := start(ctx, t, b.runArgs("--wait -v", "env", "0")...)
	eventually(t, "it says what it waits for", func() bool {
		said := out.errs.String()
		return strings.Contains(said, `waiting for "job": held by `+otherProcess+`, "doing a `) &&
			strings.Contains(said, "place 1 of 1 in the queue")
	})
	interrupt(interrupted{2})
	await(t, ended).want(t, exitSignal+2, "interrupted")
	quiet := b.refused(3*time.Second, "").want(t, exitHeld)
	if strings.Contains(quiet.errOut, "waiting for") {
		t.Errorf("without a terminal it says:\n%s", quiet.errOut)
	}
}

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

// If the server dies, "distlock run" reports that while it waits for the lock.
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
	waits := begin(uri+"&serverSelectionTimeoutMS=1000", "--wait", "-v")
	awaitText(t, waits.out.String, `waiting for "job": held by `)
	shut()
	awaitText(t, waits.out.String, `waiting for "job": no server answers at 127.0.0.1`)
}
