//go:build unix

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"mongodlm/cmd/internal/words"
	"mongodlm/internal/test/assert"
)

func (b *base) runArgs(flags string, helper ...string) []string {
	args := b.flags(append([]string{"run", "job"}, strings.Fields(flags)...)...)
	return append(append(args, "--"), self(b.t, helper...)...)
}

func (b *base) run(flags string, helper ...string) result {
	b.t.Helper()
	return cli(b.t, b.runArgs(flags, helper...)...)
}

// ready waits until a helper has printed its process id.
func ready(t *testing.T, out *screen) (pid int) {
	t.Helper()
	eventually(t, "the command runs", func() bool {
		pid = pidAfter(out.String(), "ready")
		return pid > 0
	})
	return pid
}

func terminate(t *testing.T, pid int) {
	t.Helper()
	assert.Must(t, syscall.Kill(pid, syscall.SIGTERM))
}

// dead reports whether a process has exited and its parent has waited for it.
func dead(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// pidAfter returns the number after a word, or 0 if the text has no such number.
func pidAfter(text, word string) (pid int) {
	if _, rest, found := strings.Cut(text, word+" "); found && strings.Contains(rest, "\n") {
		_, _ = fmt.Sscan(rest, &pid) // remains 0 if this is no number
	}
	return pid
}

func TestRun_Command_GetsEnvironmentAndItsCodePassesThrough(t *testing.T) {
	b := newBase(t)
	r := b.run("--why nightly", "env", "3")
	l := b.lock("job")
	r.want(t, 3, "DISTLOCK_NAME=job\n", fmt.Sprintf("DISTLOCK_FENCE=%d\n", l.Fence))
	if l.Held || l.Fence == 0 || l.Why != "nightly" {
		t.Errorf("lock is %+v", l)
	}
	if r = b.run("", "env", "0").want(t, 0); r.errOut != "" {
		t.Errorf("said %q", r.errOut)
	}
	b.run("", "die").want(t, exitSignal+int(syscall.SIGKILL))
	cli(t, append(b.flags("run", "job"), "--", "no-such-command")...).want(t, exitNotFound)
	cli(t, append(b.flags("run", "job"), "--", "/")...).want(t, exitNotRunnable)
	if l := b.lock("job"); l.Held {
		t.Errorf("lock is held at the end: %+v", l)
	}
}

// refused returns the result of a call of "distlock run" that cannot acquire the lock. On a busy
// machine, the wait may end before "distlock run" has read the holder. In that case refused tries
// again with twice the wait.
func (b *base) refused(wait time.Duration, flags string) (r result) {
	b.t.Helper()
	eventually(b.t, "the holder is printed", func() bool {
		r = cli(b.t, b.runArgs(fmt.Sprintf("%s --wait %v", flags, wait), "env", "0")...)
		wait *= 2
		return r.code != exitUnavailable && !strings.Contains(r.errOut, `"job": held: `)
	})
	return r
}

func TestRun_LockHeld_Exits75AndNamesTheHolder(t *testing.T) {
	b := newBase(t)
	out, ended := start(t.Context(), t, b.runArgs("--why nightly", "polite")...)
	ready(t, out)
	b.refused(100*time.Millisecond, "").want(t, exitHeld, b.lock("job").Process, "nightly")
	b.signalled(out, ended)
	if b.lock("job").Held {
		t.Error("the lock is still held")
	}
}

func TestRun_LockBroken_CommandIsTerminatedThenKilled(t *testing.T) {
	b := newBase(t)
	out, ended := start(t.Context(), t,
		b.runArgs("--ping 100ms --takeover 15s --grace 1s", "stubborn")...)
	pid := ready(t, out)
	fence := fmt.Sprint(b.lock("job").Fence)
	b.cli("break", "job", "--fence", fence, "--why", "stuck", "--yes").want(t, 0)
	await(t, ended).want(t, exitLost, "got terminated", "lost", "SIGKILL")
	if !dead(pid) {
		t.Errorf("process %d is alive", pid)
	}
	if l := b.lock("job"); l.Held || l.Why != "broken: stuck" {
		t.Errorf("lock is %+v", l)
	}
}

func TestRun_ServerGone_CommandEndsBeforeATakeover(t *testing.T) {
	t.Parallel()
	uri, shut := ownServer(t)
	args := append([]string{"run", "job", "--uri", uri, "--ping", "300ms",
		"--takeover", "12s", "--grace", "0s", "--"}, self(t, "stubborn")...)
	out, ended := start(t.Context(), t, args...)
	pid := ready(t, out)
	shut()
	await(t, ended).want(t, exitLost, "no ping was acknowledged in time")
	if !dead(pid) {
		t.Errorf("process %d is alive", pid)
	}
}

// left waits until a helper has printed the process id of the child that it leaves behind.
func left(t *testing.T, out *screen) (pid int) {
	t.Helper()
	eventually(t, "a process is left", func() bool {
		pid = pidAfter(out.String(), "parent of")
		return pid > 0
	})
	return pid
}

// A command that has exited before the loss of the lock is not reported as killed.
func TestRun_LockBrokenAfterTheExit_CommandIsNotReportedAsKilled(t *testing.T) {
	b := newBase(t)
	out, ended := start(t.Context(), t,
		b.runArgs("--ping 100ms --takeover 15s --grace 3s", "parent", "stubborn")...)
	command := assert.Value(syscall.Getpgid(left(t, out)))(t)
	eventually(t, "the command has exited", func() bool { return dead(command) })
	fence := fmt.Sprint(b.lock("job").Fence)
	b.cli("break", "job", "--fence", fence, "--why", "stuck", "--yes").want(t, 0)
	if r := await(t, ended).want(t, exitLost, "has ended with 0"); strings.Contains(r.errOut, "SIGKILL") {
		t.Errorf("it says:\n%s", r.errOut)
	}
}

func TestRun_CommandLeavesAProcess_ItIsEndedBeforeTheLockIsFree(t *testing.T) {
	b := newBase(t)
	out, ended := start(t.Context(), t, b.runArgs("--grace 1s", "parent", "stubborn")...)
	left := left(t, out)
	next := b.run("--wait", "alive", fmt.Sprint(left)).want(t, 0)
	if strings.Contains(next.out, "alive") {
		t.Errorf("when the next holder began: %s", next.out)
	}
	await(t, ended).want(t, 0, "left behind were killed")
}

// If the command leaves a process behind that exits on SIGTERM, "distlock run" waits only until
// that process exits. This holds even in a container whose init process does not wait for orphans.
func TestRun_CommandLeavesAProcessThatObeys_NothingIsKilled(t *testing.T) {
	b := newBase(t)
	for _, kind := range []string{"polite", "between"} { // the parent of the process may exit later
		r := b.run("--grace 20s --takeover 5m", "parent", kind).want(t, 0)
		if strings.Contains(r.errOut, "killed") {
			t.Errorf("%s: it says:\n%s", kind, r.errOut)
		}
	}
}

// If the command leaves its process group, "distlock run" still waits for its exit.
func TestRun_CommandLeavesItsGroup_ExitIsNoticed(t *testing.T) {
	b := newBase(t)
	b.run("", "leaver").want(t, 3)
	if b.lock("job").Held {
		t.Error("the lock is still held")
	}
}

// zombie reports whether a process has exited and its parent has not waited for it.
func zombie(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}

func TestRun_Signal_IsForwarded(t *testing.T) {
	b := newBase(t)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			p := process(t, nil, b.runArgs("", "polite")...)
			p.pids(1)
			p.signal(s)
			p.wait().want(t, 7, "got "+s.String())
		})
	}
	if b.lock("job").Held {
		t.Error("the lock is still held")
	}
}

func TestRunner_SetMargin_KillsBeforeATakeover(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, flags string }{
		{"defaults", ""},
		{"short takeover", "--ping 50ms --takeover 2s"},
		{"little room", "--ping 500ms --takeover 2s"},
		{"long grace", "--ping 1s --takeover 20s --grace 15s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cmd runner
			assert.Must(t, cmd.accept(parsed(t, &cmd, "job --uri mongodb://h "+c.flags+" -- true")))
			if cmd.grace+cmd.takeover/10 > cmd.margin {
				t.Errorf("grace %v, margin %v, takeover %v", cmd.grace, cmd.margin, cmd.takeover)
			}
			if c.name == "defaults" && (cmd.grace != defaultGrace ||
				cmd.margin != words.DefaultTakeover/4) {
				t.Errorf("defaults: grace %v, margin %v", cmd.grace, cmd.margin)
			}
		})
	}
}

// distlock shows a name or a path completely, even if it resembles a secret.
func TestRun_NamesLikeSecrets_AreShown(t *testing.T) {
	b := newBase(t)
	cli(t, append(b.flags("run", "pwd:sync"), "--", "/etc/passwd")...).want(t, exitNotRunnable,
		`"/etc/passwd": permission denied`)
	b.cli("locks", "pwd:sync").want(t, exitFailed, `"pwd:sync"`)
}
