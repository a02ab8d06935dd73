//go:build !linux

package main

import "os/exec"

// dieWithUs leaves it to the end of the standard input to tell a balancer that the demo is over.
func dieWithUs(*exec.Cmd) {}
