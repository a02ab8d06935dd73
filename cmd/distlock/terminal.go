//go:build unix

package main

import "golang.org/x/sys/unix"

// A terminal is the file descriptor of the controlling terminal of this process. It is -1 if there
// is none. Every operation on it then fails.
type terminal int

func openTerminal() terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return terminal(fd)
}

// owner returns the process group in the foreground of the terminal, or 0 when unknown.
func (t terminal) owner() int {
	pgid, _ := unix.IoctlGetInt(int(t), unix.TIOCGPGRP) // 0 with an error
	return pgid
}

// pass moves the foreground from one process group to another. It reports whether the other group
// is in the foreground now. It does not restore the modes that a killed command has changed.
func (t terminal) pass(from, to int) bool {
	if t.owner() == from {
		_ = unix.IoctlSetPointerInt(int(t), unix.TIOCSPGRP, to)
	}
	return t.owner() == to
}
