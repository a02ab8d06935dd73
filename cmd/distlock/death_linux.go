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

// bury waits for what was adopted and has ended. The children of the given numbers have others who
// wait for them; as long as these have not, the rest is left to the next call.
func bury(others ...int) {
	for {
		var info unix.Siginfo // in which the package gives the number no name
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		pid := int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 8+unsafe.Sizeof(uintptr(0)))))
		if err != nil || pid == 0 || slices.Contains(others, pid) {
			return
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}

// working reports whether anything of a process group has not ended, as far as this process may
// see it. What has ended may never be waited for, by a parent that has left the group.
func working(pgid int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	return slices.ContainsFunc(stats, func(path string) bool {
		text, _ := os.ReadFile(path)                                          // it may have gone
		of := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // proc_pid_stat(5) from 3
		return len(of) > 17 && of[2] == strconv.Itoa(pgid) &&
			(of[0] != "Z" || of[17] != "1") // of its threads the first may be the first to end
	})
}
