//go:build !unix

package main

// canStop is false, because this system cannot stop and continue a process.
const canStop = false

func stop(*process)   {}
func resume(*process) {}
