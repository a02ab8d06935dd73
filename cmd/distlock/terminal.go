//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A terminal is the one that controls this process. Its nil has no owner and is given to nobody.
type terminal struct {
	file  *os.File
	own   int         // this process's group
	modes *term.State // as they were when the terminal was given away
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
