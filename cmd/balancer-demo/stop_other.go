//go:build !unix

package main

// canStop reports whether a process can be stopped and continued here.
const canStop = false

func stop(*process)   {}
func resume(*process) {}
