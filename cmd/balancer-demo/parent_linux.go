package main

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel kill a process, even a stopped one, when the thread that started it
// ends: so a killed demo leaves no process behind.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
