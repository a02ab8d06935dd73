//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
)

// "distlock run" forwards SIGHUP and SIGQUIT, too. A shell cannot trap a signal that was ignored
// when the shell began, for example under nohup.
func TestRun_EverySignal_IsForwarded(t *testing.T) {
	b := newBase(t)
	for name, s := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT} {
		if signal.Ignored(s) {
			continue
		}
		p := process(t, nil, append(b.flags("run", "job-"+name), "--", "sh", "-c",
			`trap "echo got `+name+`; exit 7" `+name+`; echo "ready $$"; while :; do sleep 0.05; done`)...)
		p.pids(1)
		p.signal(s)
		p.wait().want(t, 7, "got "+name)
		if b.lock("job-" + name).Held {
			t.Error("the lock is still held")
		}
	}
}

// "distlock run" tells its guardian each new deadline, so that a command may run for longer than
// the first one.
func TestRun_CommandOutlivesTheFirstDeadline_IsNotEnded(t *testing.T) {
	b := newBase(t)
	p := process(t, nil, append(b.flags("run", "job", "--ping", "100ms", "--takeover", "8s"), "--",
		"sh", "-c", "sleep 7; echo done; exit 3")...)
	r := p.wait().want(t, 3, "done")
	if strings.Contains(r.out, "guardian") || strings.Contains(r.out, "suspended") {
		t.Errorf("it says\n%s", r.out)
	}
}

// "distlock run" continues if the reader of its messages exits.
func TestRun_ReaderOfTheMessagesExits_RunContinues(t *testing.T) {
	b := newBase(t)
	reading, writing, err := os.Pipe()
	assert.Must(t, err)
	words := self(t, append([]string{"distlock"}, append(b.flags("run", "job"), "--", "sh", "-c",
		`kill -STOP $$; exit 3`)...)...)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stderr = writing
	assert.Must(t, cmd.Start())
	assert.Must(t, writing.Close())
	assert.Must(t, reading.Close()) // the message about the stopped command has no reader
	_ = cmd.Wait()
	assert.Equal(t, cmd.ProcessState.ExitCode(), 3, "exit code %d, want %d")
	if b.lock("job").Held {
		t.Error("the lock is still held")
	}
}

// A guardian does not act on groups that kill(2) would treat as other sets of processes.
func TestGuardian_WrongGroup_IsRefused(t *testing.T) {
	t.Parallel()
	for _, group := range []string{"-1", "0", "1", "x", ""} {
		v := newWatchdog([]string{"5s", "1s", "1", "job"})
		if v.receive(groupMessage + " " + group); v.pgid != 0 {
			t.Errorf("group %q is accepted", group)
		}
	}
}

// The log of "distlock doctor" has the result of the examination.
func TestDoctor_Log_HasTheResult(t *testing.T) {
	b := newBase(t)
	file := t.TempDir() + "/log"
	b.cli("doctor", "--rounds", "1", "--contenders", "2", "--log", file).want(t, 0)
	text := string(assert.Value(os.ReadFile(file))(t))
	for _, part := range []string{`"fit":true`, `"kind":"ferretdb"`, `"message":"examined"`} {
		if !strings.Contains(text, part) {
			t.Errorf("the log lacks %s:\n%s", part, text)
		}
	}
}

// Before "distlock run" ends the processes of the group, it tells the guardian, so that the
// guardian does not end them a second time.
func TestGroup_End_TellsTheGuardian(t *testing.T) {
	t.Parallel()
	reading, writing, err := os.Pipe()
	assert.Must(t, err)
	defer reading.Close()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	assert.Must(t, cmd.Start())
	g := &group{cmd: cmd, pgid: cmd.Process.Pid, ended: make(chan struct{}), stopped: make(chan syscall.Signal, 1),
		guardian: &guardian{pipe: writing}, say: t.Logf, tty: -1}
	go g.wait() // ends with the process
	g.end(t.Context(), time.Minute, nil)
	assert.Must(t, writing.Close())
	var got []string
	for message := range lines(reading) {
		got = append(got, message)
	}
	assert.Slices(t, got, []string{endingMessage}, "the messages are %q, want %q")
	if g.killed || !g.status.Signaled() || g.status.Signal() != syscall.SIGTERM {
		t.Errorf("the process ended with %v, killed %v", g.status, g.killed)
	}
}

// If the lock was broken while the command ran, and "distlock run" detects that only at the
// release, its exit code is that of a lost lock.
func TestRun_LockBrokenUnnoticed_ReleaseDetectsIt(t *testing.T) {
	b := newBase(t)
	breaker := append(self(t, "distlock"), b.flags("break", "job", "--why", "x", "--yes")...)
	args := append(b.flags("run", "job"), "--", "sh", "-c", `exec "$@" --fence "$DISTLOCK_FENCE"`, "sh")
	cli(t, append(args, breaker...)...).want(t, exitLost, "the command ended with 0, but", "lost")
}

// The history has the acquisition and the release of "distlock run". By default the reason is the
// command without its arguments, because they may be secrets.
func TestRun_History_HasItsEventsWithoutArguments(t *testing.T) {
	b := newBase(t)
	cli(t, append(b.flags("run", "job"), "--", "sh", "-c", "true hunter2")...).want(t, 0)
	r := b.cli("history", "job").want(t, 0, "acquired", "released", "sh")
	if strings.Contains(r.out+b.lock("job").Why, "hunter2") {
		t.Errorf("the arguments are shown:\n%s", r.out)
	}
}
