//go:build !unix

package main

// helper is used only by the tests of run, which exists only on Unix systems.
func helper(string, []string) int { return exitUsage }
