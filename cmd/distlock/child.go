//go:build unix

package main

import (
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
func catchSignals(s stdio) (<-chan os.Signal, func()) {
	caught, stops := make(chan os.Signal, 8), make(chan os.Signal, 1)
	notify(caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	notify(stops, syscall.SIGTSTP, syscall.SIGPIPE)
	go func() { // ends with the returned function
		for signalled := range stops {
			if signalled == syscall.SIGTSTP {
				s.say("not stopped: the lock, or the place in the queue, would be lost")
			}
		}
	}()
	return caught, func() {
		signal.Stop(caught)
		signal.Stop(stops)
		close(stops)
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
	say      func(format string, args ...any)
	killed   bool // SIGKILL was sent
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
			g.guardian.extend(guard.Deadline())
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
		r.end(g, guard)
		return g.result(guard)
	}
}

// renewal returns the pause between two messages to the guardian. The pause is much shorter than a
// ping interval, so that the guardian knows a recent deadline.
func (r *runner) renewal() time.Duration { return min(r.ping/4, time.Second) }

// start creates a guardian, and then starts the command in a new process group. If "distlock run" is
// in the foreground of a terminal, start moves the new group to the foreground. If "distlock run" is
// killed before the guardian knows the group, the command dies on Linux, and continues elsewhere.
func (r *runner) start(guard *distlock.TryGuard, path string, s stdio) (*group, error) {
	guardian, err := r.startGuardian(s)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: r.command, Stdin: s.in, Stdout: s.out, Stderr: s.errOut,
		Env: append(withoutSecrets(os.Environ()), envName+"="+r.name,
			fmt.Sprintf("%s=%d", envFence, guard.Fence())),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, WaitDelay: pipeDelay}
	killWithParent(cmd.SysProcAttr)
	adoptOrphans()
	if err = guard.Err(); err == nil {
		if err = cmd.Start(); err != nil {
			err = exit{exitNotRunnable, fmt.Errorf("%s: %w", shown(path, 200), errors.Unwrap(err))}
		}
	}
	if err != nil {
		guardian.stop()
		return nil, err
	}
	g := &group{
		cmd: cmd, pgid: cmd.Process.Pid,
		ended: make(chan struct{}), stopped: make(chan syscall.Signal, 1),
		guardian: guardian, say: s.say,
	}
	guardian.order = order{Group: g.pgid, Grace: r.grace}
	guardian.extend(guard.Deadline())
	go g.wait()                    // ends with the group; runCommand waits for the command
	signal.Ignore(syscall.SIGTTOU) // run's output must not stop run; no later child inherits this
	if isTerminal(s.in) && isTerminal(s.out) {
		moveTerminal(syscall.Getpgrp(), g.pgid)
	}
	return g, nil
}

// withoutSecrets removes the variables with the connection string and with the name of the
// database.
func withoutSecrets(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == envURI || name == envDatabase
	})
}

// wait waits for all processes of the group, which include adopted orphans. If a signal stops one of
// them, wait sends the signal to g.stopped.
func (g *group) wait() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-g.pgid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no process is left
			return
		case status.Stopped():
			select {
			case g.stopped <- status.StopSignal():
			default: // an earlier stop is pending; its handler continues the whole group
			}
		case pid == g.pgid:
			g.status = status
			_ = g.cmd.Wait() // waits for the output to be copied; the process itself is already reaped
			close(g.ended)
		}
	}
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
	if wantsTerminal && !moveTerminal(syscall.Getpgrp(), g.pgid) {
		g.say("the command needs the terminal, which another job has; the command is ended")
		return false
	}
	if !wantsTerminal {
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
		return groupEmpty(g.pgid)
	default:
		return false
	}
}

// groupEmpty reports whether a process group has no member. An exited process is a member until its
// parent has waited for it.
func groupEmpty(pgid int) bool { return errors.Is(syscall.Kill(-pgid, 0), syscall.ESRCH) }

// end sends SIGTERM to all processes of the group, and SIGKILL after the grace period. If the lock
// was lost, the grace period starts at the latest at the deadline of the lock. If the lock is not
// lost, end then waits until the killed processes have exited, but at most for the takeover time.
// Finally end takes the terminal back.
func (r *runner) end(g *group, guard *distlock.TryGuard) {
	defer moveTerminal(g.pgid, syscall.Getpgrp())
	if g.exited() {
		return
	}
	g.guardian.order.Ending = true
	g.guardian.send()
	g.forward(syscall.SIGTERM)
	watch := clock.System()
	begun := watch.Now()
	lost := guard.Context()
	g.killed = endGroup(g.pgid, g.exited, func() time.Duration {
		now := watch.Now()
		left := r.grace - clock.HolderElapsed(begun, now)
		if lost.Err() != nil {
			left = min(left, guard.Deadline().Add(r.grace).Sub(now.Wall))
		}
		return left
	})
	<-g.ended // SIGKILL cannot be caught, and WaitDelay bounds the copying of output
	// A killed process exits late if it waits for a disk. The lock must stay held until then.
	for g.killed && lost.Err() == nil && !g.exited() && watch.Now().Mono-begun.Mono < r.takeover {
		g.guardian.extend(guard.Deadline())
		clock.Sleep(watch, groupPoll, nil)
	}
}

// endGroup continues the processes of a group until the group is gone or no time is left. Then it
// kills the processes. It reports whether it killed them.
func endGroup(pgid int, gone func() bool, left func() time.Duration) (killed bool) {
	for !gone() {
		rest := left()
		if rest <= 0 {
			_ = syscall.Kill(-pgid, syscall.SIGKILL)
			return true
		}
		_ = syscall.Kill(-pgid, syscall.SIGCONT) // without the terminal a process may stop again
		clock.Sleep(clock.System(), min(rest, groupPoll), nil)
	}
	return false
}

// result returns the exit code of the command, and an error if the lock was lost.
func (g *group) result(guard *distlock.TryGuard) (int, error) {
	code := g.status.ExitStatus()
	if g.status.Signaled() {
		code = exitSignal + int(g.status.Signal())
	}
	if err := guard.Err(); err != nil {
		how := fmt.Sprintf("the command has ended with %d", code)
		if g.killed {
			how = "the command got SIGTERM, then SIGKILL"
		}
		return code, fmt.Errorf("%w; %s", err, how)
	}
	if g.killed {
		g.say("the processes that the command left behind were killed")
	}
	return code, nil
}

// moveTerminal replaces the process group in the foreground of the controlling terminal, if it is the
// first group. It reports whether the second group is in the foreground now. Without a terminal, it
// does nothing and returns true. The caller must ignore SIGTTOU.
func moveTerminal(from, to int) bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return true
	}
	defer func() { _ = tty.Close() }() // Close cannot lose data
	fd := int(tty.Fd())
	owner, _ := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if owner == from && unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, to) == nil {
		owner = to
	}
	return owner == to
}
