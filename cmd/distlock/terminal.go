//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A terminal is the controlling terminal of this process. A nil terminal has no owner and refuses
// give.
type terminal struct {
	file  *os.File
	own   int         // this process's group
	modes *term.State // as they were when the terminal was given away
}

// openTerminal opens the controlling terminal; nil without one.
func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, own: syscall.Getpgrp()}
}

// fd returns the descriptor. The file must not be used in any other way afterwards.
func (t *terminal) fd() int { return int(t.file.Fd()) }

// owner returns the process group in the foreground; 0 when unknown.
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
		t.modes, _ = term.GetState(t.fd()) // nil when unknown
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
