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

// move replaces the process group in the foreground of the terminal, if it is the first group. It
// reports whether the second group is in the foreground now.
func (t *terminal) move(from, to int) bool {
	fd := int(t.file.Fd()) // after Fd, use only the descriptor and Close, not the file
	owner, _ := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if owner == from && unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, to) == nil {
		owner = to
	}
	return owner == to
}

// give puts a process group into the foreground if the group of this process is in the foreground.
// It reports whether the given group is in the foreground now.
func (t *terminal) give(pgid int) bool { return t != nil && t.move(t.own, pgid) }

// takeBack puts the group of this process into the foreground if the given group is in the
// foreground. Then it closes the terminal. The caller must ignore SIGTTOU.
func (t *terminal) takeBack(pgid int) {
	if t != nil {
		t.move(pgid, t.own)
		_ = t.file.Close()
	}
}
