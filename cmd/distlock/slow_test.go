//go:build unix

package main

import (
	"context"
	"os/exec"
	"testing"

	"mongodlm/configserver"
	"mongodlm/internal/test/assert"
)

// It tries to break: where the server has died run says what it waits for, at its end as well, and
// is not silent until it gives up.
func TestRun_ServerDied_SaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	server := assert.Value(configserver.Start(t.Context(), configserver.Config{}))(t)
	shut := func() { _ = server.Close(context.Background()) } // closing again does no harm
	t.Cleanup(shut)
	begin := func(flags ...string) (*exec.Cmd, *screen) {
		t.Helper()
		args := append([]string{"distlock", "run", "job", "--uri", server.URI()}, flags...)
		words := self(t, append(append(args, "--"), self(t, "polite")...)...)
		cmd, out := exec.CommandContext(t.Context(), words[0], words[1:]...), &screen{}
		cmd.Stdout, cmd.Stderr = out, out
		assert.Must(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it would go on for long
			_ = cmd.Wait()
		})
		return cmd, out
	}
	holds, ends := begin()
	says(t, ends.String, "ready")
	_, waits := begin("--wait", "-v", "--uri", server.URI()+"&serverSelectionTimeoutMS=2000")
	says(t, waits.String, `waiting for "job": held by `)
	shut()
	terminate(t, holds.Process.Pid)
	says(t, ends.String, "the command has ended with 7; waiting for 127.0.0.1")
	says(t, waits.String, `waiting for "job": no server answers at 127.0.0.1`)
}
