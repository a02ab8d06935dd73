package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// killWithParent makes the kernel kill this process when the thread that started it ends. The
// setting survives an exec. It belongs to a thread, so killWithParent locks the goroutine to its
// thread.
func killWithParent(parent int) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0) // on failure the guardian ends the command
	if os.Getppid() != parent {
		os.Exit(exitFailed) // the parent has died already
	}
}

// adoptOrphans makes this process the parent of the command's orphans, so that it can wait for
// them. In a container, the init process may not wait for orphans, and they would stay zombies.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// reap waits for the adopted processes that have exited. It does not wait for the processes with an
// id in others, because the code that started them does. If reap finds one of these processes, it
// returns, and the next call reaps the rest.
func reap(others ...int) {
	for {
		var info unix.Siginfo // the package has no name for the field with the number
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		pid := int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 8+unsafe.Sizeof(uintptr(0)))))
		if err != nil || pid == 0 || slices.Contains(others, pid) {
			return
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}

// hasRunning reports whether /proc shows a process of the group that has not exited. A zombie has
// exited. It may remain if its parent is outside the group.
func hasRunning(pgid int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	return slices.ContainsFunc(stats, func(path string) bool {
		text, _ := os.ReadFile(path)                                          // it may be gone
		of := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // proc_pid_stat(5) from 3
		return len(of) > 17 && of[2] == strconv.Itoa(pgid) &&
			(of[0] != "Z" || of[17] != "1") // the first thread may end before the others
	})
}
