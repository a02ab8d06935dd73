package main

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel kill the process of cmd when the thread that started the process ends.
// The kernel kills even a stopped process. A killed demo therefore leaves no process behind.
func dieWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
