package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"mongodlm/cmd/balancer-demo/internal/balancer"
)

// A process is one balancer process of the demo, and its successors under the same number.
type process struct {
	number int
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{} // closed when it has ended and all its events were delivered
	stderr *tail
}

// tail keeps the last bytes that a process wrote.
type tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 4096 {
		t.buf = t.buf[len(t.buf)-4096:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}

// spawn starts a balancer. The connection string goes through the environment, so that no list of
// processes shows it.
func spawn(o opts, number int, events chan<- balancer.Event) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.Command(self, "balancer", "--until-eof",
		"--number", fmt.Sprint(number), "--database", o.database,
		"--ping", o.ping.String(), "--takeover", o.takeover.String())
	cmd.Env = append(os.Environ(), "MONGODLM_URI="+o.uri)
	p := &process{number: number, cmd: cmd, exited: make(chan struct{}), stderr: &tail{}}
	cmd.Stderr = p.stderr
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() { // ends with the process; end and kill wait for it
		defer close(p.exited)
		runtime.LockOSThread() // the process dies with the thread that started it, see dieWithUs
		defer runtime.UnlockOSThread()
		dieWithUs(cmd)
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var e balancer.Event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				events <- e
			}
		}
		_ = cmd.Wait() // how it ended shows in what it told
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start balancer %d: %w", number, err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process at once, as a crash does.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// end asks the process to give its lock back and end, and kills it when it does not.
func (p *process) end(ctx context.Context) {
	_ = p.stdin.Close()
	resume(p)
	t := time.NewTimer(closeLimit)
	defer t.Stop()
	select {
	case <-p.exited:
		return
	case <-t.C:
	case <-ctx.Done():
	}
	p.kill()
	<-p.exited
}
