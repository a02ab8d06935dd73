//go:build unix

package main

import "syscall"

// canStop is true, because this system can stop and continue a process.
const canStop = true

func stop(p *process)   { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func resume(p *process) { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
