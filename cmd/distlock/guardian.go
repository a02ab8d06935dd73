//go:build unix

package main

import (
	"bufio"
	"errors"
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

// The hidden commands. With these commands, "distlock run" starts this program as a starter or as a
// guardian.
const (
	starterArg  = "start"    // PARENT PATH ARG0 ARG...: becomes the command of run
	guardianArg = "guardian" // GROUP GRACE LATE UNTIL NAME: ends the command when run cannot
)

// The messages that "distlock run" sends to its guardian, one per line.
const (
	untilMessage  = "until"  // with a wall clock in nanoseconds: the deadline of the lock
	endingMessage = "ending" // run has sent SIGTERM to the command
)

// internalCommand runs the hidden command that args contain, and returns its exit code and true. If
// args contain no hidden command, internalCommand returns false.
func internalCommand(args []string) (code int, was bool) {
	if len(args) < 4 {
		return 0, false
	}
	switch args[1] {
	case starterArg:
		return runStarter(args[2:]), true
	case guardianArg:
		return runGuardian(args[2:]), true
	}
	return 0, false
}

// selfCommand returns a command that runs this program again. On Linux the command works even if
// the program's file was replaced.
func selfCommand(args ...string) *exec.Cmd {
	path := "/proc/self/exe"
	if _, err := os.Stat(path); err != nil {
		if path, err = os.Executable(); err != nil {
			path = os.Args[0]
		}
	}
	cmd := exec.Command(path, args...)
	cmd.Args[0] = "distlock"
	return cmd
}

// runStarter waits for a byte from "distlock run" and then executes the command. If "distlock run"
// closes the pipe without a byte, runStarter fails.
func runStarter(args []string) int {
	parent, err := strconv.Atoi(args[0])
	if err != nil || len(args) < 3 {
		fmt.Fprintln(os.Stderr, "distlock start: an internal command of distlock run")
		return exitUsage
	}
	pipe := os.NewFile(3, "start pipe")
	if n, _ := pipe.Read(make([]byte, 1)); n == 0 {
		return exitFailed
	}
	_ = pipe.Close() // the command must not inherit the pipe
	killWithParent(parent)
	err = syscall.Exec(args[1], args[2:], os.Environ())
	fmt.Fprintf(os.Stderr, "distlock run: %s: %v\n", shown(args[1], 200), err)
	return exitNotRunnable
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

func (r *runner) startGuardian(pgid int, until time.Time, s stdio) (*guardian, error) {
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := selfCommand(guardianArg, strconv.Itoa(pgid), r.grace.String(), r.guardianDelay().String(),
		strconv.FormatInt(until.UnixNano(), 10), r.name)
	cmd.Env = []string{}
	cmd.Stdin, cmd.Stderr = reading, s.errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = pipeDelay
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
func runGuardian(args []string) int {
	v, err := newWatchdog(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "distlock guardian: an internal command of distlock run:", err)
		return exitUsage
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	why := v.watch(lines(os.Stdin))
	if groupEmpty(v.pgid) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "distlock run: %s; its command is ended now, and lock %s may be held "+
		"until the takeover time has passed\n", why, named(args[4]))
	v.end()
	return 0
}

func newWatchdog(args []string) (*watchdog, error) {
	if len(args) != 5 {
		return nil, errors.New("it takes five arguments")
	}
	v := &watchdog{clock: clock.System()}
	var errs [4]error
	v.pgid, errs[0] = strconv.Atoi(args[0])
	v.grace, errs[1] = time.ParseDuration(args[1])
	v.late, errs[2] = time.ParseDuration(args[2])
	if v.pgid < 2 { // kill(2) treats 0 and -1 as other sets of processes
		errs[3] = fmt.Errorf("there is no group %d", v.pgid)
	}
	v.receive(untilMessage + " " + args[3])
	return v, errors.Join(errs[:]...)
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
	if line == endingMessage {
		v.ending = true
		return
	}
	until, found := strings.CutPrefix(line, untilMessage+" ")
	if at, err := strconv.ParseInt(until, 10, 64); found && err == nil {
		v.begun = v.clock.Now()
		v.left = time.Unix(0, at).Sub(v.begun.Wall) + v.late
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
