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

// hidden returns false: run is not available here and does not start this program again.
func hidden([]string) (int, bool) { return 0, false }

func forwarded(stdio) (<-chan os.Signal, func()) { return nil, func() {} }

func (r *runner) under(context.Context, *distlock.TryGuard, string, stdio, <-chan os.Signal) (
	int, error,
) {
	return 0, runSupported()
}
