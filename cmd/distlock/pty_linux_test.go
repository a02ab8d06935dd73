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

// terminalOf makes a pseudo-terminal of 80 columns: the side of the person, and that of programs.
func terminalOf(t *testing.T) (person, programs *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine gives no pseudo-terminal: %v", err)
	}
	control, err := person.SyscallConn() // Fd would make reading block for good
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

// session runs a shell script in a terminal of its own; "$@" are the words of distlock.
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
		_, _ = io.Copy(&p.out, person) // EIO is its end
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

// types writes what a person types.
func types(t *testing.T, person io.Writer, text string) {
	t.Helper()
	assert.Value(io.WriteString(person, text))(t)
}

// A command that read from the terminal was stopped, and held its lock for ever.
func TestRun_Terminal_IsTheCommandsAndGivenBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, script string }{
		{"alone", `"$@"; echo "code $?"; read line; echo "shell reads $line"`},
		{"before a pipe", `("$@"; echo "code $?") | cat; read line; echo "shell reads $line"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBase(t)
			p, person := session(t, c.script, b.under("", "read")...)
			p.pids(1)
			types(t, person, "one\n")
			says(t, p.out.String, "code")
			types(t, person, "two\n")
			p.wait().want(t, 0, `read "one\n"`, "code 5", "shell reads two")
		})
	}
}

func TestRun_ControlC_ReachesTheCommandOnce(t *testing.T) {
	b := newBase(t)
	p, person := session(t, `trap "" INT; "$@"; echo "code $?"`,
		b.under("--grace 100ms", "stubborn")...)
	pid := p.pids(1)[0]
	types(t, person, "\x03")
	says(t, p.out.String, "got interrupt")
	var n int
	_, _ = fmt.Sscan(pid, &n)
	assert.Must(t, syscall.Kill(n, syscall.SIGKILL))
	r := p.wait().want(t, 0, "code 137")
	if n := strings.Count(r.out, "got interrupt"); n != 1 {
		t.Errorf("the command was interrupted %d times:\n%s", n, r.out)
	}
}

// Neither the command nor run stands still: its lock would be held, or lost.
func TestRun_ControlZ_StopsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, script, says string }{
		{"alone", `"$@"; echo "code $?"`, "was stopped (SIGTSTP) and goes on"},
		{"before a pipe", `("$@"; echo "code $?") | (trap "" TSTP; cat)`, "not stopped: the lock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBase(t)
			p, person := session(t, `trap "" TSTP; `+c.script, b.under("", "polite")...)
			pid := p.pids(1)[0]
			types(t, person, "\x1a")
			says(t, p.out.String, c.says)
			var n int
			_, _ = fmt.Sscan(pid, &n)
			terminate(t, n)
			p.wait().want(t, 0, "got terminated", "code 7")
		})
	}
}

// In the background nobody may have the terminal, and waiting for it would be waiting with the
// lock.
func TestRun_Background_CommandThatReadsIsEnded(t *testing.T) {
	b := newBase(t)
	p, _ := session(t, `set -m; "$@" & wait $!; echo "code $?"`,
		b.under("--grace 1m", "read")...)
	p.wait().want(t, 0, "wants the terminal, which another job has", "code 143")
	if l := b.lock("job"); l.Held {
		t.Errorf("lock is %+v", l)
	}
}

// A watch that is stopped leaves the terminal to the shell, and has it again when it goes on.
func TestWatch_ControlZ_GivesTheTerminalBackMeanwhile(t *testing.T) {
	b := newBase(t)
	b.hold("job", 1795228717123)
	p, person := session(t, `set -m; trap : INT; "$@"; echo "code $?"; fg; echo "code $?"`,
		b.flags("watch", "--every", "1h")...)
	says(t, p.out.String, "1795228717123")
	types(t, person, "\x1a")
	says(t, p.out.String, "code 149")
	stopped := strings.Index(p.out.String(), "code 149")
	eventually(t, "the frame is drawn again", func() bool {
		return strings.Contains(p.out.String()[stopped:], "1795228717123")
	})
	types(t, person, "\x03")
	got := p.wait().want(t, 0, "code 0").out
	if before := got[:stopped]; !strings.Contains(before, firstScreen) ||
		strings.LastIndex(before, otherScreen) >
			strings.LastIndex(before, firstScreen) {
		t.Errorf("the shell is not on its screen: %q", got)
	}
	if after := got[stopped:]; strings.Count(after, otherScreen) != 1 ||
		strings.Count(after, firstScreen) != 1 {
		t.Errorf("the screen is not taken again and given back: %q", got)
	}
}

// A terminal that knows no escapes gets none.
func TestWatch_DumbTerminal_GetsLines(t *testing.T) {
	b := newBase(t)
	b.hold("job", 1795228717123)
	p, person := session(t, `trap : INT; TERM=dumb "$@"; echo "code $?"`,
		b.flags("watch", "--every", "100ms")...)
	says(t, p.out.String, "1795228717123")
	types(t, person, "\x03")
	if got := p.wait().want(t, 0, "code 0").out; strings.Contains(got, "\x1b") {
		t.Errorf("escapes: %q", got)
	}
}

// Watch leaves the terminal as it was: the screen, the cursor, and the shell behind it.
func TestWatch_ControlC_RestoresTheTerminal(t *testing.T) {
	b := newBase(t)
	b.hold("job", 1795228717123)
	p, person := session(t, `trap : INT; "$@"; echo "code $?"; read line; echo "shell reads $line"`,
		b.flags("watch", "--every", "100ms")...)
	says(t, p.out.String, "1795228717123")
	if got := p.out.String(); !strings.HasPrefix(got, otherScreen) {
		t.Errorf("it does not begin on a screen of its own: %q", got)
	}
	types(t, person, "\x03")
	says(t, p.out.String, "code 0")
	types(t, person, "x\n")
	got := p.wait().want(t, 0, "shell reads x").out
	if n := strings.Count(got, firstScreen); n != 1 ||
		strings.LastIndex(got, home) > strings.Index(got, firstScreen) {
		t.Errorf("the terminal is given back %d times: %q", n, got)
	}
}

// The screen of watch is moved by keys, and leaves the modes of the terminal as they were.
func TestWatch_Keys_MoveAndEnd(t *testing.T) {
	b := newBase(t)
	for i := range 40 {
		b.held(fmt.Sprintf("job-%02d", i), int64(i))
	}
	p, person := session(t, `"$@"; echo "code $?"; stty -a`, b.flags("watch", "--every", "1h")...)
	says(t, p.out.String, "lines 1 to 22 of")
	if strings.Contains(p.out.String(), "job-39") {
		t.Errorf("all of it fits: the test proves nothing: %q", p.out.String())
	}
	types(t, person, "G")
	says(t, p.out.String, "job-39")
	types(t, person, "q")
	if got := p.wait().want(t, 0, "code 0").out; strings.Contains(got, "-icanon") ||
		!strings.Contains(got, "icanon") || strings.Contains(got, "-echo ") {
		t.Errorf("the terminal is not as it was: %q", got)
	}
}
