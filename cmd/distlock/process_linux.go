package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// killWithParent makes the kernel kill a process when the thread that starts the process ends.
func killWithParent(process *syscall.SysProcAttr) { process.Pdeathsig = syscall.SIGKILL }

// adoptOrphans makes this process the parent of the orphans that the command leaves behind, so that
// it can wait for those in the group of the command. In a container, the init process might not wait
// for orphans, and they would stay zombies. An orphan that has left the group stays a zombie until
// this process ends.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
