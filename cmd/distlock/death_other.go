//go:build unix && !linux

package main

// dieWith does nothing: here only the guardian ends the command of a run that was killed.
func dieWith(int) {}

// adoptOrphans does nothing: here init waits for what the command leaves behind.
func adoptOrphans() {}

// bury does nothing: nothing was adopted.
func bury(...int) {}

// working is true of nothing: here what works cannot be told from what nobody has waited for.
func working(int) bool { return false }
