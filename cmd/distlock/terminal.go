//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A terminal is the controlling terminal of this process. A nil terminal has no owner, and give
// returns false.
type terminal struct {
	file  *os.File
	own   int         // the process group of this process
	modes *term.State // the modes at the time of give
}

// openTerminal opens the controlling terminal. It returns nil without a terminal.
func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, own: syscall.Getpgrp()}
}

// fd returns the descriptor. Afterwards the file must not be used in another way.
func (t *terminal) fd() int { return int(t.file.Fd()) }

// owner returns the process group in the foreground, or 0 when unknown.
func (t *terminal) owner() int {
	pgid, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return pgid
}

// give puts a process group into the foreground if the group of this process has it. It reports
// whether the given group is in the foreground.
func (t *terminal) give(pgid int) bool {
	if t == nil {
		return false
	}
	if t.owner() == t.own {
		t.modes, _ = term.GetState(t.fd()) // nil when unknown
		_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, pgid)
	}
	return t.owner() == pgid
}

// takeBack puts the group of this process into the foreground if pgid has it, and closes the
// terminal. It restores the modes of the terminal after a group that was killed. SIGTTOU must be
// ignored.
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
