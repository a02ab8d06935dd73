package mongodtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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

	command *exec.Cmd
	exited  chan struct{} // closed after the exit of the process
}

func (n *node) start(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(n.dir, "data"), 0o700); err != nil {
		return err
	}
	n.command = exec.Command(n.path, n.args...)
	if err := n.command.Start(); err != nil {
		return err
	}
	n.exited = make(chan struct{})
	go func(c *exec.Cmd, exited chan struct{}) { // returns after the exit of the process
		_ = c.Wait() // its state is irrelevant; kill waits for the exit
		close(exited)
	}(n.command, n.exited)
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

func (n *node) signal(s os.Signal) error {
	if n.command == nil || n.command.Process == nil {
		return errors.New("mongodtest: the node was never started")
	}
	return n.command.Process.Signal(s)
}

// kill kills the process, even if it is paused, and waits for its exit.
func (n *node) kill() {
	if n.signal(syscall.SIGKILL) == nil {
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
