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

// The words by which this program starts itself again. They are for run alone and stand in no help.
const (
	starterWord  = "start"    // PARENT PATH ARG0 ARG...: becomes the command of run
	guardianWord = "guardian" // GROUP GRACE LATE UNTIL NAME: ends it when run cannot
)

// What run writes to its guardian, a line each.
const (
	untilWord  = "until"  // and a wall clock in nanoseconds: the lock is trusted until then
	endingWord = "ending" // run has told the command to end
)

// hidden does what this program was started again for. It reports false if it was not.
func hidden(args []string) (code int, was bool) {
	if len(args) < 4 {
		return 0, false
	}
	switch args[1] {
	case starterWord:
		return starter(args[2:]), true
	case guardianWord:
		return guardianOf(args[2:]), true
	}
	return 0, false
}

// again makes a command of this very program, also if its file has been replaced since.
func again(args ...string) *exec.Cmd {
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

// starter waits for the word of run and becomes the command. Without the word it ends: run has.
func starter(args []string) int {
	parent, err := strconv.Atoi(args[0])
	if err != nil || len(args) < 3 {
		fmt.Fprintln(os.Stderr, "distlock start: this is for distlock run itself")
		return exitUsage
	}
	word := os.NewFile(3, "the word")
	if n, _ := word.Read(make([]byte, 1)); n == 0 {
		return exitFailed
	}
	_ = word.Close() // so that the command does not have it
	dieWith(parent)
	err = syscall.Exec(args[1], args[2:], os.Environ())
	fmt.Fprintf(os.Stderr, "distlock run: %s: %v\n", shown(args[1], 200), err)
	return exitNotRunnable
}

// A guardian is, to run, the process that ends the command should run be killed, or be stopped past
// its deadline. It lives in a session of its own, where nothing reaches it that is sent to run.
type guardian struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	pipe  *os.File      // its end tells that run has ended
	clock clock.Clock
	until time.Time // as told
	died  bool      // before its work was done; set when ended is closed
}

// guard starts the guardian of a process group.
func (r *runner) guard(pgid int, until time.Time, s stdio) (*guardian, error) {
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := again(guardianWord, strconv.Itoa(pgid), r.grace.String(), r.late().String(),
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
	g := &guardian{
		cmd: cmd, ended: make(chan struct{}), pipe: writing, clock: clock.System(), until: until,
	}
	go func() { // ends with the guardian, which dismiss ends
		defer close(g.ended)
		g.died = cmd.Wait() != nil
	}()
	return g, nil
}

// late is how long after the deadline the guardian steps in: long enough for run to do it itself,
// and half of what lies between the SIGKILL and the takeover at most.
func (r *runner) late() time.Duration { return min(r.takeover/20, time.Second) }

// trust tells the deadline, if that has changed.
func (g *guardian) trust(until time.Time) {
	if !until.Equal(g.until) {
		g.tell(fmt.Sprintf("%s %d", untilWord, until.UnixNano()))
		g.until = until
	}
}

// ending tells that the command was told to end.
func (g *guardian) ending() { g.tell(endingWord) }

// tell writes a line. A guardian that does not read is not waited for, and one that has ended is
// told of elsewhere.
func (g *guardian) tell(line string) {
	_ = g.pipe.SetWriteDeadline(g.clock.Now().Wall.Add(time.Second)) // a pipe can do that
	_, _ = io.WriteString(g.pipe, line+"\n")
}

// dismiss ends the guardian of a group that has ended.
func (g *guardian) dismiss() {
	_ = g.cmd.Process.Kill() // it may have ended, or stand still
	<-g.ended
	_ = g.pipe.Close() // last: its end is what it waits for
}

// A vigil is what the guardian does in its process.
type vigil struct {
	pgid        int
	grace, late time.Duration
	clock       clock.Clock
	begun       clock.Reading // when left was told
	left        time.Duration // until the deadline
	ending      bool
}

// guardianOf reads what run tells until the command must be ended, and ends it.
func guardianOf(args []string) int {
	v, err := newVigil(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "distlock guardian: this is for distlock run itself:", err)
		return exitUsage
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	why := v.watch(lines(os.Stdin))
	if vanished(v.pgid) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "distlock run: %s; its command is ended now, and lock %s may be held "+
		"until the takeover time has passed\n", why, named(args[4]))
	v.end()
	return 0
}

// newVigil reads the arguments.
func newVigil(args []string) (*vigil, error) {
	if len(args) != 5 {
		return nil, errors.New("it takes five arguments")
	}
	v := &vigil{clock: clock.System()}
	var errs [4]error
	v.pgid, errs[0] = strconv.Atoi(args[0])
	v.grace, errs[1] = time.ParseDuration(args[1])
	v.late, errs[2] = time.ParseDuration(args[2])
	if v.pgid < 2 { // 0 and 1 would be others than a group of ours
		errs[3] = fmt.Errorf("there is no group %d", v.pgid)
	}
	v.hear(untilWord + " " + args[3])
	return v, errors.Join(errs[:]...)
}

// lines reads a pipe to its end.
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

// watch returns when the command must be ended, and says why.
func (v *vigil) watch(told <-chan string) string {
	for {
		// A suspended machine stops the timer and not the wall clock, so it is short.
		timer := v.clock.NewTimer(max(groupPoll, min(v.remaining(), time.Second)))
		select {
		case line, ok := <-told:
			if !ok {
				timer.Stop()
				return "it was killed"
			}
			v.hear(line)
		case <-timer.C():
			if v.remaining() <= 0 && !v.ending || v.remaining()+v.grace <= 0 {
				return "it stood still for too long"
			}
		}
		timer.Stop()
	}
}

// hear takes in what run tells.
func (v *vigil) hear(line string) {
	if line == endingWord {
		v.ending = true
		return
	}
	until, found := strings.CutPrefix(line, untilWord+" ")
	if at, err := strconv.ParseInt(until, 10, 64); found && err == nil {
		v.begun = v.clock.Now()
		v.left = time.Unix(0, at).Sub(v.begun.Wall) + v.late
	}
}

// remaining is how long run is left alone.
func (v *vigil) remaining() time.Duration {
	return v.left - clock.HolderElapsed(v.begun, v.clock.Now())
}

// end ends the group: SIGTERM, unless run has sent it, and SIGKILL after the grace, but no later
// than the grace after the deadline.
func (v *vigil) end() {
	if !v.ending {
		_ = syscall.Kill(-v.pgid, syscall.SIGTERM) // it may have ended
	}
	_ = syscall.Kill(-v.pgid, syscall.SIGCONT) // what stands still could not obey
	for begun := v.clock.Now(); !vanished(v.pgid); {
		left := min(v.grace-clock.HolderElapsed(begun, v.clock.Now()), v.remaining()+v.grace)
		if left <= 0 {
			_ = syscall.Kill(-v.pgid, syscall.SIGKILL)
			return
		}
		clock.Sleep(v.clock, min(left, groupPoll), nil)
	}
}
