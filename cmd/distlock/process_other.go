//go:build unix && !linux

package main

// killWithParent does nothing: on this system only the guardian ends the command of a killed run.
func killWithParent(int) {}

// adoptOrphans does nothing: on this system the command's orphans are left to the init process.
func adoptOrphans() {}

// reap does nothing: this process adopts no processes.
func reap(...int) {}

// hasRunning returns false: this system does not distinguish a running process from a zombie.
func hasRunning(int) bool { return false }
