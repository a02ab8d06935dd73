//go:build !unix

package main

import (
	"context"
	"errors"
	"os"

	"mongodlm/distlock"
)

// runSupported returns the reason why run is not available here.
func runSupported() error {
	return errors.New("run needs process groups and signals, which this system does not have; " +
		"the other commands work here")
}

// internalCommand returns false. Without run, this program does not start itself again.
func internalCommand([]string) (int, bool) { return 0, false }

func catchSignals(stdio) (<-chan os.Signal, func()) { return nil, func() {} }

func (r *runner) runCommand(context.Context, *distlock.TryGuard, string, stdio, <-chan os.Signal) (
	int, error,
) {
	return 0, runSupported()
}
