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

// pipeDelay bounds the waiting for output of a command that has ended and left its pipes to others.
const pipeDelay = time.Second

// groupPoll is the pause between two looks whether a process group has ended.
const groupPoll = 10 * time.Millisecond

// runSupported returns nil where run has what it needs.
func runSupported() error { return nil }

// forwarded catches the signals that are passed on to the command. It also keeps this process from
// being stopped by the terminal, since what stands still renews nothing, and from ending because
// nobody reads what it says.
func forwarded(s stdio) (<-chan os.Signal, func()) {
	caught, stops := make(chan os.Signal, 8), make(chan os.Signal, 1)
	notify(caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	notify(stops, syscall.SIGTSTP, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() { // ends with the returned function, which waits for it
		defer close(done)
		for signalled := range stops {
			if signalled == syscall.SIGTSTP {
				s.say("not stopped: the lock, or the place in line for it, would be lost")
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

// A group is a command and what it starts, unless that leaves the process group.
type group struct {
	cmd      *exec.Cmd
	pgid     int
	ended    chan struct{}       // closed when the command has ended; status is set before
	status   syscall.WaitStatus  // how
	stopped  chan syscall.Signal // the command was stopped by it
	guardian *guardian
	tty      *terminal // nil when there is none
	say      func(format string, args ...any)
	clock    clock.Clock
	killed   bool // SIGKILL was sent
	resumed  bool // it was told that a stopped command goes on
}

// under runs the command while guard is trusted and returns its exit code when nothing of its
// group runs any more. The error is a *distlock.LostError when the lock was lost.
func (r *runner) under(ctx context.Context, guard *distlock.TryGuard, path string, s stdio,
	signals <-chan os.Signal) (code int, err error) {
	runtime.LockOSThread() // the command dies with the thread that made it
	defer runtime.UnlockOSThread()
	g, err := r.start(guard, path, s)
	if err != nil {
		return 0, err
	}
	defer g.guardian.dismiss()
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
			g.guardian.trust(guard.Deadline())
			if s.in == os.Stdin { // the process is run's alone, and has no other children
				bury(g.pgid, g.guardian.cmd.Process.Pid)
			}
			renewal.Reset(r.renewal())
			continue
		case <-unguarded:
			unguarded = nil
			if g.guardian.died { // else it has ended the command
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
				g.forward(syscall.SIGTERM) // a signal comes by its own channel
			}
			continue
		}
		g.end(lost, r.grace, guard)
		return g.verdict(guard)
	}
}

// renewal is the pause between two messages to the guardian: a small part of a ping interval, so
// that what it knows of the deadline is never old.
func (r *runner) renewal() time.Duration { return min(r.ping/4, time.Second) }

// start starts the command in a process group of its own, with a guardian and, if run has it, with
// the terminal. The command waits for the word until all of that is so.
func (r *runner) start(guard *distlock.TryGuard, path string, s stdio) (*group, error) {
	word, speak, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = speak.Close() }() // without the word what was started ends
	cmd := again(append([]string{starterWord, strconv.Itoa(os.Getpid()), path}, r.command...)...)
	cmd.Env = append(withoutSecrets(os.Environ()),
		envName+"="+r.name, fmt.Sprintf("%s=%d", envFence, guard.Fence()))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.errOut
	cmd.ExtraFiles = []*os.File{word}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = pipeDelay
	adoptOrphans()
	err = cmd.Start()
	_ = word.Close()
	if err != nil {
		return nil, err
	}
	g := &group{
		cmd: cmd, pgid: cmd.Process.Pid,
		ended: make(chan struct{}), stopped: make(chan syscall.Signal, 1),
		tty: openTerminal(), say: s.say, clock: clock.System(),
	}
	go g.wait() // ends with the command; every way out of here and of under waits for it
	g.guardian, err = r.guard(g.pgid, guard.Deadline(), s)
	if err == nil {
		signal.Ignore(syscall.SIGTTOU) // what run says must not stop it; nothing is started from here on
		if s.interactive() {
			g.tty.give(g.pgid)
		}
		if err = guard.Err(); err == nil {
			_, err = speak.Write([]byte{1})
		}
	}
	if err != nil {
		_ = speak.Close()
		<-g.ended
		g.tty.takeBack(g.pgid, false)
		if g.guardian != nil {
			g.guardian.dismiss()
		}
		return nil, err
	}
	return g, nil
}

// withoutSecrets leaves out of an environment what names the server and its password.
func withoutSecrets(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == envURI || name == envDatabase
	})
}

// wait waits for the command, and tells when it is stopped.
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
			default: // it is told of an earlier stop, and that continues it as well
			}
			continue
		}
		break
	}
	_ = g.cmd.Wait() // for the copies of its output; the process itself has been waited for
}

// signal sends to the whole group. One that has ended needs no signal.
func (g *group) signal(s syscall.Signal) { _ = syscall.Kill(-g.pgid, s) }

// forward passes a signal on, also to what stands still and could not obey.
func (g *group) forward(s syscall.Signal) {
	g.signal(s)
	g.signal(syscall.SIGCONT)
}

// resume lets a stopped command go on, since everybody else would have to wait for as long as it
// stands still. It gets the terminal if that is what it wants. It reports false if it cannot have
// it.
func (g *group) resume(by syscall.Signal) bool {
	wants := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if wants && g.tty != nil && !g.tty.give(g.pgid) {
		g.say("the command wants the terminal, which another job has; it is ended")
		return false
	}
	if !wants && !g.resumed {
		g.resumed = true
		g.say("the command was stopped (%s) and goes on: others wait for what holds a lock",
			unix.SignalName(by))
	}
	g.signal(syscall.SIGCONT)
	return true
}

// gone reports whether nothing of the group is left. The command itself must have been waited for,
// and while anything of the group is left its number is given to nobody else.
func (g *group) gone() bool {
	select {
	case <-g.ended:
		for { // orphans of the group that have become this process's children
			pid, err := syscall.Wait4(-g.pgid, nil, syscall.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, syscall.EINTR) {
				return vanished(g.pgid)
			}
		}
	default:
		return false
	}
}

// vanished reports whether nothing of a process group is left, also nothing that has ended and was
// not waited for.
func vanished(pgid int) bool { return errors.Is(syscall.Kill(-pgid, 0), syscall.ESRCH) }

// end ends what is left of the group: SIGTERM, and SIGKILL after grace. If the lock is or gets lost
// meanwhile the SIGKILL comes no later than grace after the deadline, and at once when this
// process itself was late to see it. As long as the lock is trusted it waits, on Linux, until
// nothing of the group works any more. It takes the terminal back.
func (g *group) end(lost context.Context, grace time.Duration, guard *distlock.TryGuard) {
	defer func() { g.tty.takeBack(g.pgid, g.status.Signaled()) }()
	if g.gone() {
		return
	}
	g.guardian.ending()
	g.forward(syscall.SIGTERM)
	begun := g.clock.Now()
	for !g.gone() {
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
		g.signal(syscall.SIGCONT) // who wants the terminal may stand still again before it obeys
	}
	<-g.ended // SIGKILL cannot be refused, and WaitDelay bounds the rest
	// What SIGKILL ends may take its time, as long as a disk does not answer.
	for g.killed && lost.Err() == nil && working(g.pgid) {
		g.guardian.trust(guard.Deadline())
		clock.Sleep(g.clock, groupPoll, nil)
	}
}

// verdict says how it ended.
func (g *group) verdict(guard *distlock.TryGuard) (int, error) {
	code := g.status.ExitStatus()
	if g.status.Signaled() {
		code = exitSignal + int(g.status.Signal())
	}
	if err := guard.Err(); err != nil {
		how := fmt.Sprintf("the command has ended with %d", code)
		if g.killed {
			how = "the command was told to end, and killed when it did not"
		}
		return code, fmt.Errorf("%w; %s", err, how)
	}
	if g.killed {
		g.say("what the command left running was killed")
	}
	return code, nil
}
