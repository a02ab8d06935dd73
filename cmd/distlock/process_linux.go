package main

import (
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// killWithParent makes the kernel kill a process when the thread that starts the process ends.
func killWithParent(process *syscall.SysProcAttr) { process.Pdeathsig = syscall.SIGKILL }

// adoptOrphans makes this process the parent of the orphans that the command leaves behind, so that
// it can wait for them. In a container, the init process might not wait for orphans, and they would
// stay zombies.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// reap waits for the adopted processes that have exited. Other code waits for the processes with
// the given ids, which are not adopted. If reap finds one of the given processes, it returns, and
// the next call of reap waits for the rest.
func reap(others ...int) {
	for {
		var info unix.Siginfo // package unix does not name the field with the process id
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		pid := int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 8+unsafe.Sizeof(uintptr(0)))))
		if err != nil || pid == 0 || slices.Contains(others, pid) {
			return
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}
