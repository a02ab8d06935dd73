//go:build !unix

package main

// On this system, "distlock run" does not exist. Only its tests call helper.
func helper(string, []string) int { return exitUsage }

var scripts map[string]string
