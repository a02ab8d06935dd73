package main

import (
	"os/exec"
	"syscall"
)

// dieWithUs lets the kernel kill a process, stopped or not, when the thread that started it ends:
// so a demo that is killed leaves none behind.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
