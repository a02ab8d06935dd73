package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"mongodlm/internal/test/assert"
)

// terminalOf opens a pseudo-terminal of 80 columns. It returns the side of the user and the side of
// the programs.
func terminalOf(t *testing.T) (person, programs *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine gives no pseudo-terminal: %v", err)
	}
	control, err := person.SyscallConn() // Fd would make reads block forever
	assert.Must(t, err)
	var number int
	var failed error
	err = control.Control(func(fd uintptr) {
		failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	programs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	assert.Must(t, err)
	return person, programs
}

// session runs a shell script in a new terminal. The variable "$@" of the script is the command
// line of distlock.
func session(t *testing.T, script string, args ...string) (p *program, person *os.File) {
	t.Helper()
	person, programs := terminalOf(t)
	words := append([]string{"-c", script, "sh"}, self(t, append([]string{"distlock"}, args...)...)...)
	p = &program{t: t, cmd: exec.Command("sh", words...), ended: make(chan struct{})}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = programs, programs, programs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	assert.Must(t, p.cmd.Start())
	assert.Must(t, programs.Close())
	shown := make(chan struct{})
	go func() { // ends when no program has the terminal, or with the cleanup
		defer close(shown)
		_, _ = io.Copy(&p.out, person) // EIO is the end of the output
	}()
	go func() { // ends with the process; the cleanup waits for it
		defer close(p.ended)
		_ = p.cmd.Wait()
		<-shown
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		_ = person.Close()
		<-p.ended
	})
	return p, person
}

func types(t *testing.T, person io.Writer, text string) {
	t.Helper()
	assert.Value(io.WriteString(person, text))(t)
}

// The command of "distlock run" can read from the terminal. After the end of "distlock run", the
// shell can read from the terminal again.
func TestRun_Terminal_IsTheCommandsAndGivenBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, script string }{
		{"alone", `"$@"; echo "code $?"; read line; echo "shell reads $line"`},
		{"before a pipe", `("$@"; echo "code $?") | cat; read line; echo "shell reads $line"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBase(t)
			p, person := session(t, c.script, b.runArgs("", "read")...)
			p.pids(1)
			types(t, person, "one\n")
			awaitText(t, p.out.String, "code")
			types(t, person, "two\n")
			p.wait().want(t, 0, "read one", "code 5", "shell reads two")
		})
	}
}

func TestRun_ControlC_ReachesTheCommandOnce(t *testing.T) {
	b := newBase(t)
	p, person := session(t, `trap "" INT; "$@"; echo "code $?"`,
		b.runArgs("--grace 100ms", "stubborn")...)
	pid := p.pids(1)[0]
	types(t, person, "\x03")
	awaitText(t, p.out.String, "got interrupt")
	assert.Must(t, syscall.Kill(pid, syscall.SIGKILL))
	r := p.wait().want(t, 0, "code 137")
	if n := strings.Count(r.out, "got interrupt"); n != 1 {
		t.Errorf("the command was interrupted %d times:\n%s", n, r.out)
	}
}

// Ctrl-Z stops neither "distlock run" nor its command. A stopped command would keep its lock, and a
// stopped "distlock run" would lose the lock.
func TestRun_ControlZ_StopsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, script, says, code string }{
		{"alone", `"$@"; echo "code $?"`, "was stopped (SIGTSTP) and continues", "code 7"},
		{"before a pipe", `set -m; "$@" | (trap "" TSTP; cat); echo "code $?"`, "^Z", "code 0"}, // of cat
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBase(t)
			p, person := session(t, c.script, b.runArgs("", "polite")...)
			pid := p.pids(1)[0]
			types(t, person, "\x1a")
			awaitText(t, p.out.String, c.says)
			terminate(t, pid)
			p.wait().want(t, 0, "got terminated", c.code)
		})
	}
}

// If "distlock run" is in the background and its command reads from the terminal, "distlock run"
// ends the command. Otherwise the command would keep its lock while it waits for the terminal.
func TestRun_Background_CommandThatReadsIsEnded(t *testing.T) {
	b := newBase(t)
	p, _ := session(t, `set -m; "$@" & wait $!; echo "code $?"`,
		b.runArgs("--grace 1m", "read")...)
	p.wait().want(t, 0, "needs the terminal, which another job has", "code 143")
	if l := b.lock("job"); l.Held {
		t.Errorf("lock is %+v", l)
	}
}
