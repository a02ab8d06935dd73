//go:build unix

package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"mongodlm/internal/test/assert"
)

// started matches the log line of a ready balancer, and captures the number of its process.
var started = regexp.MustCompile(`started: ready process="?[^:]*:(\d+):`)

// If a signal or a closed terminal ends a demo, the demo leaves no process and no folder behind.
func TestDemo_EndedFromOutside_LeavesNothing(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name string
		end  func(demo *os.Process)
		code int
	}{
		{"interrupt", func(p *os.Process) { _ = p.Signal(os.Interrupt) }, 130},
		{"quit", func(p *os.Process) { _ = p.Signal(syscall.SIGQUIT) }, 131},
		{"terminal closed", func(p *os.Process) { _ = p.Signal(syscall.SIGHUP) }, 129},
	} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "whole-demo")
			cmd.Env = append(os.Environ(), "TMPDIR="+folder, "MONGODLM_URI=")
			cmd.Stderr = os.Stderr
			out, in, err := os.Pipe()
			assert.Must(t, err)
			cmd.Stdout = in
			assert.Must(t, cmd.Start())
			_ = in.Close()
			var pids []int
			lines := bufio.NewScanner(out)
			for len(pids) < 3 && lines.Scan() {
				if found := started.FindStringSubmatch(lines.Text()); found != nil {
					pid, _ := strconv.Atoi(found[1]) // digits only
					pids = append(pids, pid)
				}
			}
			assert.MustEqual(t, len(pids), 3, "%d balancers reported that they are ready, want %d")
			how.end(cmd.Process)
			for lines.Scan() { // otherwise the demo could not write its report
			}
			_ = cmd.Wait() // the exit code is checked below
			if code := cmd.ProcessState.ExitCode(); code != how.code {
				t.Errorf("exit code %d, want %d", code, how.code)
			}
			for _, pid := range pids {
				if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
					t.Errorf("balancer %d is left: %v", pid, err)
				}
			}
			left, err := os.ReadDir(folder)
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
