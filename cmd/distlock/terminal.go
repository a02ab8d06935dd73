//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the controlling terminal of this process. A nil *terminal means that there is none.
// The methods give and takeBack then do nothing.
type terminal struct {
	file *os.File
	own  int // the process group of this process
}

// openTerminal opens the controlling terminal. It returns nil if this process has none.
func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, own: syscall.Getpgrp()}
}

// fd returns the file descriptor. After the first call, use only the descriptor and Close, not the
// file.
func (t *terminal) fd() int { return int(t.file.Fd()) }

// owner returns the process group in the foreground of the terminal, or 0 when unknown.
func (t *terminal) owner() int {
	pgid, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return pgid
}

// give puts a process group into the foreground if the group of this process is in the foreground.
// It reports whether the given group is in the foreground now.
func (t *terminal) give(pgid int) bool {
	if t == nil {
		return false
	}
	if t.owner() == t.own {
		_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, pgid)
	}
	return t.owner() == pgid
}

// takeBack puts the group of this process into the foreground if the given group is in the
// foreground. Then it closes the terminal. It does not restore the modes that a killed command has
// changed. The caller must ignore SIGTTOU.
func (t *terminal) takeBack(pgid int) {
	if t == nil {
		return
	}
	if t.owner() == pgid {
		_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, t.own)
	}
	_ = t.file.Close()
}
