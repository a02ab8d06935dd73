package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"mongodlm/cmd/balancer-demo/internal/balancer"
	"mongodlm/internal/clock"
)

type process struct {
	number int
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{} // closed when the process has exited and all its events were delivered
	killed bool          // the demo killed the process
}

// spawn starts a balancer process. It passes the connection string in the environment, because
// every user can read the arguments of a process.
func (d *demo) spawn(number int) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the executable: %w", err)
	}
	args := []string{
		"balancer", "--until-eof", "--number", fmt.Sprint(number), "--database", d.o.database,
		"--ping", d.o.ping.String(), "--takeover", d.o.takeover.String(),
	}
	if d.o.metrics != "" {
		args = append(args, "--metrics", d.o.metricsOf(number))
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "MONGODLM_URI="+d.o.uri)
	p := &process{number: number, cmd: cmd, exited: make(chan struct{})}
	cmd.Stderr = os.Stderr
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start balancer %d: %w", number, err)
	}
	go func() { // ends with the process; end and kill wait for it
		defer close(p.exited)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var e balancer.Event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				d.events <- e
			}
		}
		_ = cmd.Wait() // the events of the process show the result
	}()
	d.processes[number-1] = p
	return nil
}

// kill kills the process, as a crash does, and waits for its exit.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
	p.killed = true
}

// end lets the process release its lock and exit. If the process does not exit within closeLimit,
// end kills it.
func (p *process) end() {
	_ = p.stdin.Close()
	resume(p)
	if clock.Sleep(clock.System(), closeLimit, p.exited) {
		p.kill()
	}
}
