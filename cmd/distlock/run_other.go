//go:build !unix

package main

import (
	"errors"
	"os"

	"mongodlm/distlock"
)

func runSupported() error {
	return errors.New("run needs process groups and signals, which this system does not have; " +
		"the other commands work here")
}

// internalCommand returns false. Only "distlock run" starts this program again, and it does not
// exist on this system.
func internalCommand([]string) bool { return false }

func catchSignals() (<-chan os.Signal, func()) { return nil, func() {} }

func (r *runner) runCommand(*distlock.TryGuard, string, stdio, <-chan os.Signal) (int, error) {
	return 0, runSupported()
}
