//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"mongodlm/internal/test/assert"
)

// If a balancer dies without being killed by the demo, the demo fails and ends the other balancers.
// The arguments of a balancer do not contain the connection string, because every user can read
// them.
func TestDemo_BalancerDiesByItself_IsAFailure(t *testing.T) {
	t.Parallel()
	var errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], "whole-demo", "--no-faults")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "MONGODLM_URI=")
	cmd.Stderr = &errOut
	out := assert.Value(cmd.StdoutPipe())(t)
	assert.Must(t, cmd.Start())
	var pids []int
	var text strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		found := started.FindStringSubmatch(lines.Text())
		if found == nil {
			continue
		}
		pid, _ := strconv.Atoi(found[1]) // digits only
		if pids = append(pids, pid); len(pids) == 3 {
			arguments, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // exists on Linux
			if strings.Contains(string(arguments), "mongodb://") {
				t.Errorf("the arguments are %q", arguments)
			}
			assert.Must(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(text.String(), "exited unexpectedly") {
		t.Errorf("exit code %d\n%s%s", code, text.String(), errOut.String())
	}
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("the balancer %d is left", pid)
		}
	}
}
