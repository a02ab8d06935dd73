//go:build !unix

package main

// helper is for the tests of run, which there is on unix systems only.
func helper(string, []string) int { return exitUsage }
