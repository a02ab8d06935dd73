//go:build unix && !linux

package main

// dieWith does nothing: on this system only the guardian ends the command of a killed run.
func dieWith(int) {}

// adoptOrphans does nothing: on this system init waits for the processes that the command leaves
// behind.
func adoptOrphans() {}

// bury does nothing: there are no adopted processes.
func bury(...int) {}

// working returns false: this system does not distinguish a running process from a zombie.
func working(int) bool { return false }
