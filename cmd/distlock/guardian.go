//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mongodlm/internal/clock"
)

// guardianArg is the hidden command GRACE LATE UNTIL NAME, which ends the command when "distlock
// run" cannot.
const guardianArg = "guardian"

// The messages that "distlock run" sends to its guardian, one per line.
const (
	groupMessage  = "group"  // with the number of the process group of the command
	untilMessage  = "until"  // with a wall clock in nanoseconds: the deadline of the lock
	endingMessage = "ending" // run has sent SIGTERM to the command
)

// internalCommand runs the hidden command and returns true. If args do not contain it,
// internalCommand returns false.
func internalCommand(args []string) bool {
	is := len(args) == 6 && args[1] == guardianArg
	if is {
		runGuardian(args[2:])
	}
	return is
}

// selfPath returns the path of this program. On Linux the path works even if the program's file was
// replaced.
func selfPath() string {
	const path = "/proc/self/exe"
	if _, err := os.Stat(path); err == nil {
		return path
	}
	own, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return own
}

// A guardian controls the guardian process of "distlock run". The guardian process ends the command
// if "distlock run" is killed, or is stopped past the deadline of the lock. The guardian process
// has a separate session, so that signals to the process group of "distlock run" do not reach it.
type guardian struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has exited
	pipe  *os.File      // if run exits, the process reads the end of the pipe
	until time.Time     // the last deadline that was sent
	died  bool          // the guardian process failed; set before ended is closed
}

func (r *runner) startGuardian(until time.Time, s stdio) (*guardian, error) {
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: selfPath(), Args: []string{"distlock", guardianArg, r.grace.String(),
		r.guardianDelay().String(), strconv.FormatInt(until.UnixNano(), 10), r.name},
		Env: []string{}, Stdin: reading, Stderr: s.errOut, WaitDelay: pipeDelay,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	err = cmd.Start()
	_ = reading.Close()
	if err != nil {
		_ = writing.Close()
		return nil, fmt.Errorf("start the guardian of the command: %w", err)
	}
	g := &guardian{cmd: cmd, ended: make(chan struct{}), pipe: writing, until: until}
	go func() { // ends with the guardian, which stop ends
		defer close(g.ended)
		g.died = cmd.Wait() != nil
	}()
	return g, nil
}

// guardianDelay returns the delay from the deadline of the lock to the first action of the
// guardian. During the delay, "distlock run" can act first. The delay is at most half of the time
// between SIGKILL and a takeover.
func (r *runner) guardianDelay() time.Duration { return min(r.takeover/20, time.Second) }

func (g *guardian) sendDeadline(until time.Time) {
	if !until.Equal(g.until) {
		g.send(fmt.Sprintf("%s %d", untilMessage, until.UnixNano()))
		g.until = until
	}
}

// send sends a line to the guardian. If the guardian does not read, send gives up after a second.
// send ignores errors, because runCommand reports the exit of the guardian.
func (g *guardian) send(line string) {
	_ = g.pipe.SetWriteDeadline(clock.System().Now().Wall.Add(time.Second)) // pipes support deadlines
	_, _ = io.WriteString(g.pipe, line+"\n")
}

func (g *guardian) stop() {
	_ = g.cmd.Process.Kill() // the process may have exited, or be stopped
	<-g.ended
	_ = g.pipe.Close() // last, because the guardian ends the command at the pipe's end
}

// A watchdog is the state of a guardian process.
type watchdog struct {
	clock       clock.Clock
	pgid        int
	grace, late time.Duration
	begun       clock.Reading // the time of the latest deadline message
	left        time.Duration // the time from begun to the deadline, plus late
	ending      bool
}

// runGuardian reads the messages of "distlock run" until the command must be ended. Then it ends
// the command.
func runGuardian(args []string) {
	v := newWatchdog(args)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	why := v.watch(lines(os.Stdin))
	if v.pgid == 0 || groupEmpty(v.pgid) {
		return
	}
	fmt.Fprintf(os.Stderr, "distlock run: %s; its command is ended now, and lock %s may be held "+
		"until the takeover time has passed\n", why, named(args[3]))
	v.end()
}

// newWatchdog ignores errors, because "distlock run" has formatted the arguments.
func newWatchdog(args []string) *watchdog {
	v := &watchdog{clock: clock.System()}
	v.grace, _ = time.ParseDuration(args[0])
	v.late, _ = time.ParseDuration(args[1])
	v.receive(untilMessage + " " + args[2])
	return v
}

func lines(in io.Reader) <-chan string {
	read := make(chan string)
	go func() { // ends with the pipe or the process
		defer close(read)
		for s := bufio.NewScanner(in); s.Scan(); {
			read <- s.Text()
		}
	}()
	return read
}

// watch blocks until the command must be ended, and returns the reason.
func (v *watchdog) watch(messages <-chan string) string {
	for {
		// A timer stops while the machine is suspended, but the wall clock does not. The timer is
		// therefore short.
		timer := v.clock.NewTimer(max(groupPoll, min(v.remaining(), time.Second)))
		select {
		case line, ok := <-messages:
			if !ok {
				timer.Stop()
				return "it was killed"
			}
			v.receive(line)
		case <-timer.C():
			if v.remaining() <= 0 && !v.ending || v.remaining()+v.grace <= 0 {
				return "it was suspended for too long"
			}
		}
		timer.Stop()
	}
}

func (v *watchdog) receive(line string) {
	what, value, _ := strings.Cut(line, " ")
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case what == endingMessage:
		v.ending = true
	case what == groupMessage && err == nil && n > 1: // kill(2) treats 0 and -1 as other sets
		v.pgid = int(n)
	case what == untilMessage && err == nil:
		v.begun = v.clock.Now()
		v.left = time.Unix(0, n).Sub(v.begun.Wall) + v.late
	}
}

// remaining returns the time until the guardian acts.
func (v *watchdog) remaining() time.Duration {
	return v.left - clock.HolderElapsed(v.begun, v.clock.Now())
}

// end ends the process group. If "distlock run" has not sent SIGTERM, end sends it. After the grace
// period, end sends SIGKILL. The grace period begins at the latest a short delay after the deadline
// of the lock.
func (v *watchdog) end() {
	if !v.ending {
		_ = syscall.Kill(-v.pgid, syscall.SIGTERM) // the group may have exited
	}
	_ = syscall.Kill(-v.pgid, syscall.SIGCONT) // a stopped process cannot react
	for begun := v.clock.Now(); !groupEmpty(v.pgid); {
		left := min(v.grace-clock.HolderElapsed(begun, v.clock.Now()), v.remaining()+v.grace)
		if left <= 0 {
			_ = syscall.Kill(-v.pgid, syscall.SIGKILL)
			return
		}
		clock.Sleep(v.clock, min(left, groupPoll), nil)
	}
}
