//go:build unix

package main

import "syscall"

const canStop = true

func stop(p *process)   { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func resume(p *process) { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
