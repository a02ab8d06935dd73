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
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// pipeDelay bounds the wait for output after the command has exited. Without it, other processes
// that hold the command's pipes open would prolong the wait.
const pipeDelay = time.Second

const groupPoll = 10 * time.Millisecond

// runSupported returns nil: this system supports run.
func runSupported() error { return nil }

// catchSignals catches the signals that run forwards to the command. It also catches SIGTSTP,
// because a stopped process renews no lock, and SIGPIPE, because run must not die when nobody reads
// its messages.
func catchSignals(s stdio) (<-chan os.Signal, func()) {
	caught, stops := make(chan os.Signal, 8), make(chan os.Signal, 1)
	notify(caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	notify(stops, syscall.SIGTSTP, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() { // ends with the returned function, which waits for it
		defer close(done)
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
		<-done
	}
}

// A group is a command and the processes that it starts in its process group.
type group struct {
	cmd      *exec.Cmd
	pgid     int
	ended    chan struct{}       // closed when the command has exited; status is set before
	status   syscall.WaitStatus  // the exit status of the command
	stopped  chan syscall.Signal // receives the signals that stopped the command
	guardian *guardian
	tty      *terminal // nil without a terminal
	say      func(format string, args ...any)
	clock    clock.Clock
	killed   bool // SIGKILL was sent
	resumed  bool // the message about a continued command was printed
}

// runCommand runs the command until it exits or the lock is lost, and ends its process group. It
// returns the command's exit code. If the lock was lost, the error wraps a *distlock.LostError.
func (r *runner) runCommand(ctx context.Context, guard *distlock.TryGuard, path string, s stdio,
	signals <-chan os.Signal) (code int, err error) {
	runtime.LockOSThread() // the command dies with the thread that started it
	defer runtime.UnlockOSThread()
	g, err := r.start(guard, path, s)
	if err != nil {
		return 0, err
	}
	defer g.guardian.stop()
	lost := guard.Context()
	renewal := g.clock.NewTimer(r.renewal())
	defer renewal.Stop()
	for cancelled, unguarded := ctx.Done(), g.guardian.ended; ; {
		select {
		case <-g.ended:
		case <-lost.Done():
		case by := <-g.stopped:
			if g.resume(by) {
				continue
			}
		case <-renewal.C():
			g.guardian.sendDeadline(guard.Deadline())
			if s.in == os.Stdin { // not in a test, so run has no other children
				reap(g.pgid, g.guardian.cmd.Process.Pid)
			}
			renewal.Reset(r.renewal())
			continue
		case <-unguarded:
			unguarded = nil
			if g.guardian.died { // otherwise the guardian has ended the command
				s.say("the guardian is gone: should distlock be killed as well, nobody ends what the " +
					"command has started")
			}
			continue
		case caught := <-signals:
			g.forward(caught.(syscall.Signal))
			continue
		case <-cancelled:
			cancelled = nil
			if by := (interrupted{}); !errors.As(context.Cause(ctx), &by) {
				g.forward(syscall.SIGTERM) // a signal arrives through the channel signals
			}
			continue
		}
		g.end(lost, r.grace, guard)
		return g.result(guard)
	}
}

// renewal returns the pause between two messages to the guardian. It is a small part of a ping
// interval, which keeps the guardian's deadline recent.
func (r *runner) renewal() time.Duration { return min(r.ping/4, time.Second) }

// start starts a process in a new process group, with a guardian. If run has the terminal, start
// moves the group to the foreground. Then it sends a byte to the process, which executes the
// command.
func (r *runner) start(guard *distlock.TryGuard, path string, s stdio) (*group, error) {
	pipeR, pipeW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = pipeW.Close() }() // without the byte the started process exits
	cmd := selfCommand(append([]string{starterArg, strconv.Itoa(os.Getpid()), path}, r.command...)...)
	cmd.Env = append(withoutSecrets(os.Environ()),
		envName+"="+r.name, fmt.Sprintf("%s=%d", envFence, guard.Fence()))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.errOut
	cmd.ExtraFiles = []*os.File{pipeR}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = pipeDelay
	adoptOrphans()
	err = cmd.Start()
	_ = pipeR.Close()
	if err != nil {
		return nil, err
	}
	g := &group{
		cmd: cmd, pgid: cmd.Process.Pid,
		ended: make(chan struct{}), stopped: make(chan syscall.Signal, 1),
		tty: openTerminal(), say: s.say, clock: clock.System(),
	}
	go g.wait() // ends with the command; start and runCommand wait for it before they return
	g.guardian, err = r.startGuardian(g.pgid, guard.Deadline(), s)
	if err == nil {
		signal.Ignore(syscall.SIGTTOU) // a message must not stop run, which starts no process now
		if s.interactive() {
			g.tty.give(g.pgid)
		}
		if err = guard.Err(); err == nil {
			_, err = pipeW.Write([]byte{1})
		}
	}
	if err != nil {
		_ = pipeW.Close()
		<-g.ended
		g.tty.takeBack(g.pgid, false)
		if g.guardian != nil {
			g.guardian.stop()
		}
		return nil, err
	}
	return g, nil
}

// withoutSecrets removes the variables for the connection string (with its password) and the
// database.
func withoutSecrets(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == envURI || name == envDatabase
	})
}

// wait waits until the command exits. It reports each time that the command is stopped.
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

// signal sends a signal to the whole group. It ignores a group that has exited.
func (g *group) signal(s syscall.Signal) { _ = syscall.Kill(-g.pgid, s) }

// forward forwards a signal and continues the group, because a stopped process cannot react.
func (g *group) forward(s syscall.Signal) {
	g.signal(s)
	g.signal(syscall.SIGCONT)
}

// resume continues a stopped command, which would otherwise keep its lock. If the command needs the
// terminal, resume gives it the terminal. It returns false if another job has the terminal.
func (g *group) resume(by syscall.Signal) bool {
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if wantsTerminal && g.tty != nil && !g.tty.give(g.pgid) {
		g.say("the command wants the terminal, which another job has; it is ended")
		return false
	}
	if !wantsTerminal && !g.resumed {
		g.resumed = true
		g.say("the command was stopped (%s) and goes on: others wait for what holds a lock",
			unix.SignalName(by))
	}
	g.signal(syscall.SIGCONT)
	return true
}

// exited reports whether the command and all processes of its group have exited. The system does
// not reuse the group's number while the group has a process.
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

// end sends SIGTERM to the rest of the group, and SIGKILL after the grace. If the lock is lost, end
// sends SIGKILL at the latest when the grace has passed since the deadline of the lock. While the
// lock is trusted, end waits on Linux until no killed process runs. Finally it takes the terminal
// back.
func (g *group) end(lost context.Context, grace time.Duration, guard *distlock.TryGuard) {
	defer func() { g.tty.takeBack(g.pgid, g.status.Signaled()) }()
	if g.exited() {
		return
	}
	g.guardian.sendEnding()
	g.forward(syscall.SIGTERM)
	begun := g.clock.Now()
	for !g.exited() {
		now := g.clock.Now()
		left := grace - clock.HolderElapsed(begun, now)
		if lost.Err() != nil {
			left = min(left, guard.Deadline().Add(grace).Sub(now.Wall))
		}
		if left <= 0 {
			g.killed = true
			g.signal(syscall.SIGKILL)
			break
		}
		clock.Sleep(g.clock, min(left, groupPoll), nil)
		g.signal(syscall.SIGCONT) // without the terminal a process may stop again
	}
	<-g.ended // SIGKILL cannot be caught, and WaitDelay bounds the copying of output
	// A killed process that waits for a disk exits late.
	for g.killed && lost.Err() == nil && hasRunning(g.pgid) {
		g.guardian.sendDeadline(guard.Deadline())
		clock.Sleep(g.clock, groupPoll, nil)
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
		if g.killed {
			how = "the command was asked to end, then killed"
		}
		return code, fmt.Errorf("%w; %s", err, how)
	}
	if g.killed {
		g.say("what the command left running was killed")
	}
	return code, nil
}
