package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// pipeDelay bounds the waiting for output of a command that has ended and left its pipes to others.
const pipeDelay = time.Second

// groupPoll is the pause between two looks whether a process group has ended.
const groupPoll = 10 * time.Millisecond

// forwarded catches the signals that are passed on to the command, and SIGTSTP, which is not: a
// distlock that stands still renews nothing.
func forwarded() (<-chan os.Signal, func()) {
	caught := make(chan os.Signal, 8)
	notify(caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGTSTP)
	return caught, func() { signal.Stop(caught) }
}

// A group is a command and what it starts, unless that leaves the process group.
type group struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the command has ended; err is set before
	err    error
	clock  clock.Clock
	killed bool // SIGKILL was sent
}

// under runs the command while guard is trusted and returns its exit code when nothing of its
// group runs any more. The error is a *distlock.LostError when the lock was lost.
func (r *runner) under(ctx context.Context, guard *distlock.TryGuard, path string, s stdio,
	signals <-chan os.Signal) (code int, err error) {
	cmd := exec.Command(path, r.command[1:]...)
	cmd.Args[0] = r.command[0]
	cmd.Env = append(os.Environ(), envName+"="+r.name, fmt.Sprintf("%s=%d", envFence, guard.Fence()))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = pipeDelay
	if err := guard.Err(); err != nil {
		return exitFailed, err
	}
	if err := cmd.Start(); err != nil {
		return exitNotRunnable, err
	}
	g := &group{cmd: cmd, ended: make(chan struct{}), clock: clock.System()}
	go func() { // ends with the command; every way out of here waits for it
		defer close(g.ended)
		g.err = cmd.Wait()
	}()
	lost := guard.Context()
	for cancelled := ctx.Done(); ; {
		select {
		case <-g.ended:
			g.end(lost, r.grace, guard)
			return g.verdict(guard, s)
		case <-lost.Done():
			g.end(lost, r.grace, guard)
			return g.verdict(guard, s)
		case caught := <-signals:
			if caught == syscall.SIGTSTP {
				fmt.Fprintln(s.errOut, "distlock run: not stopped: the lock would be lost")
				continue
			}
			g.signal(caught.(syscall.Signal))
		case <-cancelled:
			cancelled = nil
			if by := (interrupted{}); !errors.As(context.Cause(ctx), &by) {
				g.signal(syscall.SIGTERM) // a signal comes by its own channel
			}
		}
	}
}

// signal sends to the whole group. One that has ended needs no signal.
func (g *group) signal(s syscall.Signal) { _ = syscall.Kill(-g.cmd.Process.Pid, s) }

// gone reports whether nothing of the group is left. The command itself must have been waited for,
// and while anything of the group is left its number is given to nobody else.
func (g *group) gone() bool {
	select {
	case <-g.ended:
		return errors.Is(syscall.Kill(-g.cmd.Process.Pid, 0), syscall.ESRCH)
	default:
		return false
	}
}

// end ends what is left of the group: SIGTERM, and SIGKILL after grace. If the lock is or gets lost
// meanwhile the SIGKILL comes no later than grace after the deadline, and at once when this
// process itself was late to see it.
func (g *group) end(lost context.Context, grace time.Duration, guard *distlock.TryGuard) {
	if g.gone() {
		return
	}
	g.signal(syscall.SIGTERM)
	g.signal(syscall.SIGCONT) // one that is stopped could not obey
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
	}
	<-g.ended // SIGKILL cannot be refused, and WaitDelay bounds the rest
}

// verdict says how it ended.
func (g *group) verdict(guard *distlock.TryGuard, s stdio) (int, error) {
	code := exitFailed
	if state := g.cmd.ProcessState; state != nil {
		code = state.ExitCode()
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = exitSignal + int(status.Signal())
		}
	}
	if err := guard.Err(); err != nil {
		how := "the command has ended"
		if g.killed {
			how = "the command was told to end, and killed when it did not"
		}
		return code, fmt.Errorf("%w; %s", err, how)
	}
	if g.killed {
		fmt.Fprintln(s.errOut, "distlock run: what the command left running was killed")
	}
	var exited *exec.ExitError
	if g.err != nil && !errors.As(g.err, &exited) && !errors.Is(g.err, exec.ErrWaitDelay) {
		return exitFailed, g.err
	}
	return code, nil
}
