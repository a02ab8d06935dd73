//go:build unix

package main

import "syscall"

// canStop reports whether a process can be stopped and continued here.
const canStop = true

func stop(p *process)   { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func resume(p *process) { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
