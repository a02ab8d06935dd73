//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/internal/test/assert"
)

// program is distlock in a separate process.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   screen
	ended chan struct{}
}

func process(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	words := self(t, append([]string{"distlock"}, args...)...)
	p := &program{t: t, cmd: exec.Command(words[0], words[1:]...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.WaitDelay = time.Minute // leaves time for the output of the guardian
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	assert.Must(t, p.cmd.Start())
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.ended
	})
	go func() { // ends with the process; the cleanup waits for it
		defer close(p.ended)
		_ = p.cmd.Wait() // callers check the exit code if they need it
	}()
	return p
}

func (p *program) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *program) wait() result {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-timeout(p.t):
		p.t.Fatalf("the process does not end; it said\n%s", p.out.String())
	}
	return result{p.cmd.ProcessState.ExitCode(), p.out.String(), ""}
}

// pids waits until the helpers have printed n process ids, and returns these ids.
func (p *program) pids(n int) (found []int) {
	p.t.Helper()
	eventually(p.t, "the command runs", func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("it has ended:\n%s", p.out.String())
		default:
		}
		found = nil
		for line := range strings.Lines(p.out.String()) {
			if pid := pidAfter(line, "ready"); pid > 0 {
				found = append(found, pid)
			}
		}
		return len(found) == n
	})
	return found
}

// Times that are short enough for a test and long enough for a busy machine.
const quickFlags = "--ping 300ms --takeover 20s --grace 500ms"

// If "distlock run" is killed or stopped, its command is dead before another process acquires the
// lock. In the test, the command of the next holder prints the live processes.
func TestRun_KilledOrStopped_CommandIsDeadBeforeTheNextHolds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		group  bool // the signal goes to the whole process group, as from a shell
	}{
		{"killed", syscall.SIGKILL, false},
		{"killed with its group", syscall.SIGKILL, true},
		{"stopped", syscall.SIGSTOP, false},
		{"stopped with its group", syscall.SIGSTOP, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBase(t)
			p := process(t, nil, b.runArgs(quickFlags, "family")...)
			pids := p.pids(2)
			to := p.cmd.Process.Pid
			if c.group {
				to = -to
			}
			assert.Must(t, syscall.Kill(to, c.signal))
			next := b.run(quickFlags+" --wait", "alive", fmt.Sprint(pids[0]), fmt.Sprint(pids[1])).want(t, 0)
			if strings.Contains(next.out, "alive") {
				t.Errorf("when the next holder began: %s", next.out)
			}
			if c.signal == syscall.SIGKILL {
				awaitText(t, p.out.String, "killed; its command is ended")
				return
			}
			p.signal(syscall.SIGCONT)
			r := p.wait().want(t, exitLost, "suspended for too long", "lost")
			if strings.Contains(r.out+r.errOut, "the guardian has died") {
				t.Errorf("it says\n%s", r.out+r.errOut)
			}
		})
	}
}

// If the guardian of "distlock run" is killed, "distlock run" reports the death of the guardian. If
// "distlock run" is killed after that, the Linux kernel kills the command.
func TestRun_GuardianKilled_IsReportedAndTheCommandDiesWithRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux lets a process die with its parent")
	}
	b := newBase(t)
	p := process(t, nil, b.runArgs("", "stubborn")...)
	pid := p.pids(1)[0]
	own := fmt.Sprint(p.cmd.Process.Pid)
	list := assert.Value(exec.Command("ps", "-o", "pid=,args=", "--ppid", own).Output())(t)
	guardian := 0
	for line := range strings.Lines(string(list)) {
		if strings.Contains(line, "distlock guardian") {
			_, _ = fmt.Sscan(line, &guardian) // remains 0 if this is no number
		}
	}
	if guardian == 0 {
		t.Fatalf("there is no guardian in\n%s", list)
	}
	assert.Must(t, syscall.Kill(guardian, syscall.SIGKILL))
	awaitText(t, p.out.String, "guardian has died")
	p.signal(syscall.SIGKILL)
	eventually(t, "the command is dead", func() bool { return dead(pid) || zombie(pid) })
}

// If the command of "distlock run" stops itself, "distlock run" continues the command. Otherwise
// the command would keep its lock forever.
func TestRun_CommandStopsItself_GoesOn(t *testing.T) {
	b := newBase(t)
	_, ended := start(t.Context(), t, b.runArgs("", "stop")...)
	await(t, ended).want(t, 3, "stops\ngoes on\n", "SIGSTOP")
}

// The environment of the command that "distlock run" starts does not contain the server's address
// or password.
func TestRun_Command_DoesNotFindTheServer(t *testing.T) {
	b := newBase(t)
	p := process(t, []string{envURI + "=" + uri, envDatabase + "=" + b.name},
		"run", "job", "--", "sh", "-c", "env; cat /proc/$$/environ || true") // the file exists on Linux
	r := p.wait().want(t, 0, envName+"=job")
	for _, secret := range []string{envURI, envDatabase, uri} {
		if strings.Contains(r.out, secret) {
			t.Errorf("the command finds %q in its environment", secret)
		}
	}
	if l := b.lock("job"); l.Held { // the lock was in the database that the environment names
		t.Errorf("lock is %+v", l)
	}
}

// "distlock run" sends each new deadline of the lock once. The guardian acts after the latest
// deadline, or when the grace period after it has passed if "distlock run" is ending the command.
func TestGuardian_NewDeadlines_PostponeTheEnd(t *testing.T) {
	t.Parallel()
	reading, writing, err := os.Pipe()
	assert.Must(t, err)
	defer reading.Close()
	begun := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	g := &guardian{pipe: writing, until: begun}
	for _, after := range []time.Duration{0, 10 * time.Second, 10 * time.Second, time.Minute} {
		g.sendDeadline(begun.Add(after))
	}
	assert.Must(t, writing.Close())
	until := func(at time.Time) string { return fmt.Sprint(untilMessage, " ", at.UnixNano()) }
	var got []string
	for line := range lines(reading) {
		got = append(got, line)
	}
	want := []string{until(begun.Add(10 * time.Second)), until(begun.Add(time.Minute))}
	if !slices.Equal(got, want) {
		t.Errorf("messages %q, want %q", got, want)
	}
	synctest.Test(t, func(t *testing.T) {
		begun, messages := time.Now(), make(chan string)
		v := newWatchdog([]string{"5s", "1s",
			fmt.Sprint(begun.Add(10 * time.Second).UnixNano()), "job"})
		go func() {
			time.Sleep(9 * time.Second)
			messages <- until(begun.Add(time.Minute))
			time.Sleep(50 * time.Second)
			messages <- endingMessage
		}()
		why := v.watch(messages)
		if took := time.Since(begun); took.Round(time.Second) != 66*time.Second {
			t.Errorf("it acts after %v: %s", took, why)
		}
	})
}
