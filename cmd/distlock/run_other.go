//go:build !unix

package main

import (
	"context"
	"errors"
	"os"

	"mongodlm/distlock"
)

// runSupported returns the reason for which run is not available here.
func runSupported() error {
	return errors.New("run needs process groups and signals, which this system does not have; " +
		"the other commands work here")
}

// hidden reports false: run, which starts this program again, is not available here.
func hidden([]string) (int, bool) { return 0, false }

func forwarded(stdio) (<-chan os.Signal, func()) { return nil, func() {} }

func (r *runner) under(context.Context, *distlock.TryGuard, string, stdio, <-chan os.Signal) (
	int, error,
) {
	return 0, runSupported()
}
