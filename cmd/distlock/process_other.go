//go:build unix && !linux

package main

// killWithParent does nothing. On this system only the guardian ends the command of a killed run.
func killWithParent(int) {}

// adoptOrphans does nothing. On this system the init process waits for orphans.
func adoptOrphans() {}

// reap does nothing, because this process adopts no processes.
func reap(...int) {}

// hasRunning returns false. This system does not distinguish a running process from a zombie.
func hasRunning(int) bool { return false }
