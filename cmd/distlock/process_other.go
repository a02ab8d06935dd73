//go:build unix && !linux

package main

import "syscall"

// killWithParent does nothing. If "distlock run" is killed on this system, only the guardian ends
// the command.
func killWithParent(*syscall.SysProcAttr) {}

// adoptOrphans does nothing. On this system the init process waits for orphans.
func adoptOrphans() {}

// hasRunning returns false, because it cannot distinguish a running process from a zombie on this
// system.
func hasRunning(int) bool { return false }
