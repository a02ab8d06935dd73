package main

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWith makes what this process becomes die with the thread of its parent, by a signal of the
// kernel. It stays on this thread, whose setting it is.
func dieWith(parent int) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0) // the guardian is left
	if os.Getppid() != parent {
		os.Exit(exitFailed) // it has died already
	}
}

// adoptOrphans makes what the command leaves behind a child of this process, which waits for it:
// the init of a container may not, and what nobody waits for looks as if it were still at work.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
