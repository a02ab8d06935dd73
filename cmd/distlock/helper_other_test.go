//go:build !unix

package main

// Only the tests of distlock run call helper, and distlock run does not exist on this
// system.
func helper(string, []string) int { return exitUsage }
