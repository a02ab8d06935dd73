//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// pipeDelay bounds the wait for output after the command has exited. Without this bound, another
// process that holds the command's pipes open would prolong the wait.
const pipeDelay = time.Second

const groupPoll = 10 * time.Millisecond

func runSupported() error { return nil }

// catchSignals returns a channel with the signals that "distlock run" forwards to the command, and
// a function that ends the delivery. It also catches SIGTSTP, because a stopped "distlock run"
// would not renew its lock. It catches SIGPIPE, because "distlock run" must continue if the reader
// of its messages exits.
func catchSignals() (<-chan os.Signal, func()) {
	caught, dropped := make(chan os.Signal, 8), make(chan os.Signal, 1)
	notify(caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	notify(dropped, syscall.SIGTSTP, syscall.SIGPIPE)
	return caught, func() {
		signal.Stop(caught)
		signal.Stop(dropped)
	}
}

// A group is the process group of the command.
type group struct {
	cmd      *exec.Cmd
	pgid     int
	ended    chan struct{}       // closed when the command has exited; status is set before
	status   syscall.WaitStatus  // the exit status of the command
	stopped  chan syscall.Signal // receives the signals that stopped the command
	guardian *guardian
	tty      terminal
	say      func(format string, args ...any)
	killed   bool // SIGKILL was sent
	resumed  bool // the message about a continued command was printed
}

// runCommand runs the command until the command exits or the lock is lost. Then runCommand ends the
// process group and returns the exit code of the command. If the lock was lost, the error wraps a
// *distlock.LostError.
func (r *runner) runCommand(guard *distlock.TryGuard, path string, s stdio,
	signals <-chan os.Signal) (code int, err error) {
	runtime.LockOSThread() // the command dies with the thread that started it
	defer runtime.UnlockOSThread()
	g, err := r.start(guard, path, s)
	if err != nil {
		return 0, err
	}
	defer g.guardian.stop()
	lost := guard.Context()
	renewal := clock.System().NewTimer(r.renewal())
	defer renewal.Stop()
	for unguarded := g.guardian.ended; ; {
		select {
		case <-g.ended:
		case <-lost.Done():
		case by := <-g.stopped:
			if g.resume(by) {
				continue
			}
		case <-renewal.C():
			g.guardian.sendDeadline(guard.Deadline())
			renewal.Reset(r.renewal())
			continue
		case <-unguarded:
			unguarded = nil
			if g.guardian.died { // otherwise the guardian has ended the command
				s.say("the guardian has died: if distlock is killed too, the processes that the command " +
					"started are not ended")
			}
			continue
		case caught := <-signals:
			g.forward(caught.(syscall.Signal))
			continue
		}
		g.end(lost, r.grace, guard)
		return g.result(guard)
	}
}

// renewal returns the pause between two messages to the guardian. The pause is much shorter than a
// ping interval, so that the guardian knows a recent deadline.
func (r *runner) renewal() time.Duration { return min(r.ping/4, time.Second) }

// start starts a guardian, and then the command in a new process group. If "distlock run" is in the
// foreground of a terminal, start moves the new group to the foreground. A "distlock run" that is
// killed before the guardian knows the group leaves the processes of the group alive, except for
// the command itself on Linux.
func (r *runner) start(guard *distlock.TryGuard, path string, s stdio) (*group, error) {
	guardian, err := r.startGuardian(guard.Deadline(), s)
	if err != nil {
		return nil, err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { // may contain the password
		return strings.HasPrefix(v, envURI+"=") || strings.HasPrefix(v, envDatabase+"=")
	})
	cmd := &exec.Cmd{Path: path, Args: r.command, Stdin: s.in, Stdout: s.out, Stderr: s.errOut,
		WaitDelay: pipeDelay, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		Env: append(env, envName+"="+r.name, fmt.Sprintf("%s=%d", envFence, guard.Fence()))}
	killWithParent(cmd.SysProcAttr)
	adoptOrphans()
	if err = guard.Err(); err == nil {
		if err = cmd.Start(); err != nil {
			err = exit{exitNotRunnable, err}
		}
	}
	if err != nil {
		guardian.stop()
		return nil, err
	}
	g := &group{
		cmd: cmd, pgid: cmd.Process.Pid, guardian: guardian,
		ended: make(chan struct{}), stopped: make(chan syscall.Signal, 1),
		tty: openTerminal(), say: s.say,
	}
	guardian.send(fmt.Sprintf("%s %d", groupMessage, g.pgid))
	signal.Ignore(syscall.SIGTTOU) // run's output must not stop run; no later child inherits this
	if isTerminal(s.in) && isTerminal(s.out) {
		g.tty.pass(syscall.Getpgrp(), g.pgid)
	}
	go g.wait() // ends with the command; runCommand waits for it before it returns
	return g, nil
}

// wait waits until the command exits. If a signal stops the command, wait sends the signal to
// g.stopped.
func (g *group) wait() {
	defer close(g.ended)
	for {
		_, err := syscall.Wait4(g.pgid, &g.status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err == nil && g.status.Stopped():
			select {
			case g.stopped <- g.status.StopSignal():
			default: // an earlier stop is pending; its handler also continues the command
			}
			continue
		}
		break
	}
	_ = g.cmd.Wait() // waits for the output to be copied; the process itself is already reaped
}

// signal sends a signal to the whole group. It ignores errors, because the group may have exited.
func (g *group) signal(s syscall.Signal) { _ = syscall.Kill(-g.pgid, s) }

// forward sends a signal to the whole group. It also continues the group, because a stopped process
// cannot react.
func (g *group) forward(s syscall.Signal) {
	g.signal(s)
	g.signal(syscall.SIGCONT)
}

// resume continues the stopped command, because a stopped command would keep the lock. If the
// command was stopped because it needs the terminal, resume first moves it to the foreground. If
// another job is in the foreground, resume returns false, and the caller ends the command.
func (g *group) resume(by syscall.Signal) bool {
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if wantsTerminal && g.tty >= 0 && !g.tty.pass(syscall.Getpgrp(), g.pgid) {
		g.say("the command needs the terminal, which another job has; the command is ended")
		return false
	}
	if !wantsTerminal && !g.resumed {
		g.resumed = true
		g.say("the command was stopped (%s) and continues, because it holds a lock",
			unix.SignalName(by))
	}
	g.signal(syscall.SIGCONT)
	return true
}

// exited reports whether the command and all processes of its group have exited. While a process of
// the group exists, the system does not reuse the number of the group.
func (g *group) exited() bool {
	select {
	case <-g.ended:
		for { // reaps orphans of the group that are now children of this process
			pid, err := syscall.Wait4(-g.pgid, nil, syscall.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, syscall.EINTR) {
				return groupEmpty(g.pgid)
			}
		}
	default:
		return false
	}
}

// groupEmpty reports whether a process group has no member. An exited process is a member until its
// parent has waited for it.
func groupEmpty(pgid int) bool { return errors.Is(syscall.Kill(-pgid, 0), syscall.ESRCH) }

// end sends SIGTERM to all processes of the group, and SIGKILL after the grace period. If the lock
// was lost, the grace period starts at the latest at the deadline of the lock. On Linux, if the
// lock is not lost, end then waits until no killed process runs. Finally end takes the terminal
// back.
func (g *group) end(lost context.Context, grace time.Duration, guard *distlock.TryGuard) {
	defer func() { // SIGTTOU is ignored
		g.tty.pass(g.pgid, syscall.Getpgrp())
		_ = unix.Close(int(g.tty))
	}()
	if g.exited() {
		return
	}
	g.guardian.send(endingMessage)
	g.forward(syscall.SIGTERM)
	watch := clock.System()
	begun := watch.Now()
	for !g.exited() {
		now := watch.Now()
		left := grace - clock.HolderElapsed(begun, now)
		if lost.Err() != nil {
			left = min(left, guard.Deadline().Add(grace).Sub(now.Wall))
		}
		if left <= 0 {
			g.killed = true
			g.signal(syscall.SIGKILL)
			break
		}
		clock.Sleep(watch, min(left, groupPoll), nil)
		g.signal(syscall.SIGCONT) // without the terminal a process may stop again
	}
	<-g.ended // SIGKILL cannot be caught, and WaitDelay bounds the copying of output
	// A killed process exits late if it waits for a disk. The lock must stay held until then.
	for g.killed && lost.Err() == nil && hasRunning(g.pgid) {
		g.guardian.sendDeadline(guard.Deadline())
		clock.Sleep(watch, groupPoll, nil)
	}
}

// result returns the exit code of the command, and an error if the lock was lost.
func (g *group) result(guard *distlock.TryGuard) (int, error) {
	code := g.status.ExitStatus()
	if g.status.Signaled() {
		code = exitSignal + int(g.status.Signal())
	}
	if err := guard.Err(); err != nil {
		how := fmt.Sprintf("the command has ended with %d", code)
		if g.killed && g.status.Signal() == syscall.SIGKILL {
			how = "the command got SIGTERM, then SIGKILL"
		}
		return code, fmt.Errorf("%w; %s", err, how)
	}
	if g.killed {
		g.say("the processes that the command left behind were killed")
	}
	return code, nil
}
