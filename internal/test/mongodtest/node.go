package mongodtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// A node is a running mongod or mongos.
type node struct {
	addr   string
	dir    string
	args   []string
	path   string
	client *mongo.Client // directly connected, without credentials

	process *os.Process   // nil before the start
	exited  chan struct{} // closed after the exit of the process
}

func (n *node) start(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(n.dir, "data"), 0o700); err != nil {
		return err
	}
	command := exec.Command(n.path, n.args...)
	if err := command.Start(); err != nil {
		return err
	}
	n.process, n.exited = command.Process, make(chan struct{})
	guard, err := guardOf(n.process)
	go func(exited chan struct{}) { // returns after the exit of the process
		_ = command.Wait() // its state is irrelevant
		if err == nil {
			_ = guard.Process.Kill() // before Wait closes the pipe, so the guard kills no other process
			_ = guard.Wait()
		}
		close(exited)
	}(n.exited)
	if err != nil {
		return err
	}
	if n.client == nil {
		client, err := mongo.Connect(options.Client().
			ApplyURI("mongodb://" + n.addr + "/?directConnection=true").
			SetServerSelectionTimeout(2 * time.Second))
		if err != nil {
			return err
		}
		n.client = client
	}
	return until(ctx, func(ctx context.Context) error {
		select {
		case <-n.exited:
			return fatal{fmt.Errorf("%s ended: %s", filepath.Base(n.path), n.lastWords())}
		default:
		}
		return n.run(ctx, bson.D{{Key: "isMaster", Value: 1}}).Err()
	})
}

func (n *node) run(ctx context.Context, command bson.D) *mongo.SingleResult {
	return n.client.Database("admin").RunCommand(ctx, command)
}

func (n *node) lastWords() string {
	text, err := os.ReadFile(filepath.Join(n.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

// guardOf starts a program that kills the process when this program dies.
func guardOf(p *os.Process) (*exec.Cmd, error) {
	guard := exec.Command("sh", "-c", fmt.Sprintf("cat >/dev/null; kill -9 %d", p.Pid))
	if _, err := guard.StdinPipe(); err != nil { // the death of this program closes the pipe
		return nil, err
	}
	return guard, guard.Start()
}

// signal sends a signal by the program kill, because Go does not name these signals on all systems.
func (n *node) signal(option string) error {
	return exec.Command("kill", option, strconv.Itoa(n.process.Pid)).Run()
}

// kill kills the process, even if it is paused, and waits for its exit.
func (n *node) kill() {
	if n.process != nil {
		_ = n.process.Kill() // it may have exited
		<-n.exited
	}
}

// A fatal is an error after which a call is not repeated.
type fatal struct{ error }

// until repeats a call every 50 ms until the call succeeds, returns a fatal error, or ctx is done.
func until(ctx context.Context, try func(context.Context) error) error {
	for {
		err := try(ctx)
		var final fatal
		if err == nil || errors.As(err, &final) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, at last: %w", context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
