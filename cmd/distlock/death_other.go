//go:build unix && !linux

package main

// dieWith does nothing: on this system only the guardian ends the command of a killed run.
func dieWith(int) {}

// adoptOrphans does nothing: on this system the command's orphans are left to the init process.
func adoptOrphans() {}

// bury does nothing: this process adopts no processes.
func bury(...int) {}

// working returns false: this system does not distinguish a running process from a zombie.
func working(int) bool { return false }
