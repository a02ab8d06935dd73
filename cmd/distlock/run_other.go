//go:build !unix

package main

import (
	"context"
	"errors"
	"os"

	"mongodlm/distlock"
	"mongodlm/internal/clock"
)

// runSupported says why there is no run here.
func runSupported() error {
	return errors.New("run needs process groups and signals, which this system does not have; " +
		"the other commands work here")
}

// hidden: nothing is started again here.
func hidden([]string) (int, bool) { return 0, false }

func forwarded(stdio) (<-chan os.Signal, func()) { return nil, func() {} }

// whenStopped: no terminal stops a process here.
func whenStopped(clock.Clock, func(func())) (end func()) { return func() {} }

func (r *runner) under(context.Context, *distlock.TryGuard, string, stdio, <-chan os.Signal) (
	int, error,
) {
	return 0, runSupported()
}
