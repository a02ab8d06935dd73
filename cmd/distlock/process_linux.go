package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// killWithParent makes the kernel kill a process at the end of the thread that starts it. Otherwise
// only the guardian would end the command after the death of "distlock run".
func killWithParent(of *syscall.SysProcAttr) { of.Pdeathsig = syscall.SIGKILL }

// adoptOrphans makes this process the parent of the orphans that the command leaves behind, so that
// it can wait for those in the group of the command. In a container, the init process might not
// wait for orphans, and they would stay zombies in the group.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// hasRunning reports whether a process of the group runs, according to /proc. A zombie does not
// run, even if its parent has not waited for it.
func hasRunning(pgid int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	return slices.ContainsFunc(stats, func(path string) bool {
		// The file does not exist if the process has exited. The first element of the slice is field 3 of
		// proc_pid_stat(5).
		text, _ := os.ReadFile(path)
		of := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		return len(of) > 17 && of[2] == strconv.Itoa(pgid) &&
			(of[0] != "Z" || of[17] != "1") // the first thread may end before the others
	})
}
