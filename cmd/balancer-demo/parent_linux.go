package main

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel kill a process, even a stopped process, when the thread that started
// it ends. So a killed demo leaves no process.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
