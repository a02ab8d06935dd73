//go:build unix

package main

import (
	"context"
	"syscall"
	"testing"

	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
)

// run reports the reason of its wait soon after the server died, and again at its end.
func TestRun_ServerDied_SaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	server := assert.Value(configserver.Start(t.Context(), configserver.Config{}))(t)
	shut := func() { _ = server.Close(context.Background()) } // a second close is harmless
	t.Cleanup(shut)
	begin := func(uri string, flags ...string) *program {
		t.Helper()
		args := append([]string{"run", "job", "--uri", uri}, flags...)
		return process(t, nil, append(append(args, "--"), self(t, "polite")...)...)
	}
	holds := begin(server.URI())
	holds.pids(1)
	waits := begin(server.URI()+"&serverSelectionTimeoutMS=4000", "--wait", "-v")
	says(t, waits.out.String, `waiting for "job": held by `)
	shut()
	holds.signal(syscall.SIGTERM)
	says(t, holds.out.String, "the command has ended with 7; waiting for 127.0.0.1")
	says(t, waits.out.String, `waiting for "job": no server answers at 127.0.0.1`)
}
