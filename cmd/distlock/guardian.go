//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"mongodlm/internal/clock"
)

// guardianArg is the hidden command with which "distlock run" starts this program as a guardian. Its
// argument is the name of the lock.
const guardianArg = "guardian"

// An order tells a guardian process when to end the command. "distlock run" sends orders as JSON.
type order struct {
	Group  int           // the process group of the command
	Grace  time.Duration // between SIGTERM and SIGKILL
	Until  time.Time     // a short delay after the deadline of the lock
	Ending bool          // "distlock run" has sent SIGTERM
}

// internalCommand runs the hidden command that args contain, and returns its exit code and true. If
// args contain no hidden command, internalCommand returns false.
func internalCommand(args []string) (code int, was bool) {
	if len(args) != 3 || args[1] != guardianArg {
		return 0, false
	}
	return runGuardian(args[2]), true
}

// A guardian controls the guardian process of "distlock run". The guardian process ends the command
// if "distlock run" is killed, or is stopped past the deadline of the lock. The guardian process
// has a separate session, so that signals to the process group of "distlock run" do not reach it.
type guardian struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has exited
	pipe  *os.File      // if run exits, the process reads the end of the pipe
	order order         // the last order
	died  bool          // the guardian process failed; set before ended is closed

	// The guardian acts a delay after the deadline of the lock, so that "distlock run" can act first.
	// The delay is at most half of the time between SIGKILL and a takeover.
	delay time.Duration
}

func (r *runner) startGuardian(s stdio) (*guardian, error) {
	self := "/proc/self/exe" // on Linux it works even if the program's file was replaced
	if _, err := os.Stat(self); err != nil {
		if self, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: self, Args: []string{"distlock", guardianArg, r.name}, Env: []string{},
		Stdin: reading, Stderr: s.errOut, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		WaitDelay: pipeDelay}
	err = cmd.Start()
	_ = reading.Close()
	if err != nil {
		_ = writing.Close()
		return nil, fmt.Errorf("start the guardian of the command: %w", err)
	}
	g := &guardian{cmd: cmd, ended: make(chan struct{}), pipe: writing,
		delay: min(r.takeover/20, time.Second)}
	go func() { // ends with the guardian, which stop ends
		defer close(g.ended)
		g.died = cmd.Wait() != nil
	}()
	return g, nil
}

// extend sends a new deadline of the lock.
func (g *guardian) extend(deadline time.Time) {
	if until := deadline.Add(g.delay); !until.Equal(g.order.Until) {
		g.order.Until = until
		g.send()
	}
}

// send sends the order. If the guardian does not read, send gives up after a second. It ignores
// errors, because runCommand reports the exit of the guardian.
func (g *guardian) send() {
	_ = g.pipe.SetWriteDeadline(clock.System().Now().Wall.Add(time.Second)) // pipes support deadlines
	_ = json.NewEncoder(g.pipe).Encode(g.order)                             // so short that it is written as a whole or not at all
}

func (g *guardian) stop() {
	_ = g.cmd.Process.Kill() // the process may have exited, or be stopped
	<-g.ended
	_ = g.pipe.Close() // last, because the guardian ends the command at the pipe's end
}

// A watchdog is the state of a guardian process.
type watchdog struct {
	order
	clock clock.Clock
	begun clock.Reading // the time of the latest order
	left  time.Duration // the time from begun to the first action
}

// runGuardian reads the orders of "distlock run" until the command must be ended. Then it ends the
// command.
func runGuardian(lock string) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE)
	orders := ordersFrom(os.Stdin)
	first := <-orders
	if first.Group < 2 { // the command was not started; kill(2) treats 0 and -1 as other sets
		return 0
	}
	w := &watchdog{clock: clock.System()}
	w.receive(first)
	why := w.watch(orders)
	if groupEmpty(w.Group) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "distlock run: %s; its command is ended now, and lock %s may be held "+
		"until the takeover time has passed\n", why, named(lock))
	w.end()
	return 0
}

func ordersFrom(in io.Reader) <-chan order {
	orders := make(chan order)
	go func() { // ends with the pipe or the process
		defer close(orders)
		read := json.NewDecoder(in)
		for o := (order{}); read.Decode(&o) == nil; {
			orders <- o
		}
	}()
	return orders
}

// watch blocks until the command must be ended, and returns the reason.
func (w *watchdog) watch(orders <-chan order) string {
	for {
		// A timer stops while the machine is suspended, but the wall clock does not. The timer is
		// therefore short.
		timer := w.clock.NewTimer(max(groupPoll, min(w.remaining(), time.Second)))
		select {
		case o, ok := <-orders:
			if !ok {
				timer.Stop()
				return "it was killed"
			}
			w.receive(o)
		case <-timer.C():
			if w.remaining() <= 0 && !w.Ending || w.remaining()+w.Grace <= 0 {
				return "it was suspended for too long"
			}
		}
		timer.Stop()
	}
}

func (w *watchdog) receive(o order) {
	w.order, w.begun = o, w.clock.Now()
	w.left = o.Until.Sub(w.begun.Wall)
}

// remaining returns the time until the guardian acts.
func (w *watchdog) remaining() time.Duration {
	return w.left - clock.HolderElapsed(w.begun, w.clock.Now())
}

// end ends the process group. If "distlock run" has not sent SIGTERM, end sends it. After the grace
// period, end sends SIGKILL. The grace period begins at the latest a short delay after the deadline
// of the lock.
func (w *watchdog) end() {
	if !w.Ending {
		_ = syscall.Kill(-w.Group, syscall.SIGTERM) // the group may have exited
	}
	begun := w.clock.Now()
	endGroup(w.Group, func() bool { return groupEmpty(w.Group) }, func() time.Duration {
		return min(w.Grace-clock.HolderElapsed(begun, w.clock.Now()), w.remaining()+w.Grace)
	})
}
