//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"mongodlm/internal/clock"
)

// A terminal is the one that controls this process. Its nil has no owner and is given to nobody.
type terminal struct {
	file  *os.File
	own   int         // this process's group
	modes *term.State // as they were when the terminal was given away
}

// stopLimit bounds the waiting for a stop, which does not come where no shell could continue the
// process, and is longer than a busy machine takes for it.
const stopLimit = 3 * time.Second

// whenStopped lets yield give the terminal back while this process is stopped from the terminal, by
// Ctrl-Z, until end is called. The stop is by SIGTTIN: package os/signal has taken away what
// SIGTSTP does by itself, and the kernel ignores both where no shell could continue the process,
// but not SIGSTOP.
func whenStopped(clk clock.Clock, yield func(others func())) (end func()) {
	stops, over, done := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	notify(stops, syscall.SIGTSTP)
	go func() { // ends with end, which waits for it
		defer close(done)
		for {
			select {
			case <-stops:
			case <-over:
				return
			}
			yield(func() {
				goesOn, limit := make(chan os.Signal, 1), clk.NewTimer(stopLimit)
				signal.Notify(goesOn, syscall.SIGCONT)
				defer signal.Stop(goesOn)
				defer limit.Stop()
				_ = syscall.Kill(os.Getpid(), syscall.SIGTTIN)
				select { // the stop is in here
				case <-goesOn:
				case <-limit.C():
				case <-over:
				}
			})
		}
	}()
	return func() {
		signal.Stop(stops)
		close(over)
		<-done
	}
}

// openTerminal returns nil when no terminal controls this process.
func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, own: syscall.Getpgrp()}
}

// fd is the descriptor; the file must not be in use any more than that.
func (t *terminal) fd() int { return int(t.file.Fd()) }

// owner is the process group in the foreground; 0 when that cannot be told.
func (t *terminal) owner() int {
	pgid, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return pgid
}

// give puts a process group into the foreground, if this process's is there, and reports whether it
// is there now.
func (t *terminal) give(pgid int) bool {
	if t == nil {
		return false
	}
	if t.owner() == t.own {
		t.modes, _ = term.GetState(t.fd()) // nil when that cannot be told
		_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, pgid)
	}
	return t.owner() == pgid
}

// takeBack puts this process's group into the foreground if pgid is there, and closes the terminal.
// The modes of the terminal are restored after a group that was killed. SIGTTOU must be ignored.
func (t *terminal) takeBack(pgid int, killed bool) {
	if t == nil {
		return
	}
	if t.owner() == pgid {
		_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, t.own)
		if killed && t.modes != nil {
			_ = term.Restore(t.fd(), t.modes)
		}
	}
	_ = t.file.Close()
}
