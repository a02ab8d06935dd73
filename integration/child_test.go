package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// childEnv is the environment variable that turns the test program into a child; see TestChild.
const childEnv = "MONGODLM_IT_CHILD"

// An order is one line of a child's input.
type order struct {
	Do     string // the operation, see child.do
	Name   string // the name of the lock, document or collection
	Fenced bool
	N      int
}

// An answer is one line of a child's output.
type answer struct {
	Do      string
	Process string
	Fence   int64
	Taken   string // evidence of a takeover
	Err     string // text of the error
	Lost    bool   // the error matches ErrLockLost
	Ended   bool   // the guard's context has ended
	Matched int64  // documents that a write matched
	N       int64  // the value read
}

// childSettings configures a child's Manager.
type childSettings struct {
	URI, Database, Host string
	Ping, Takeover      time.Duration
}

const marker = "child: " // the start of each answer

// TestChild is the program of a child, not a test.
func TestChild(t *testing.T) {
	text, ok := os.LookupEnv(childEnv)
	if !ok {
		t.Skip("only in processes that other tests start")
	}
	var s childSettings
	assert.Must(t, json.Unmarshal([]byte(text), &s))
	client := privateClient(t, options.Client().ApplyURI(s.URI))
	m := newManager(t, distlock.Config{
		Client: client, PingClient: privateClient(t, options.Client().ApplyURI(s.URI)),
		Database: s.Database, Host: s.Host, Ping: s.Ping, Takeover: s.Takeover, Margin: s.Takeover / 10,
		Tuning: distlock.Tuning{MaxWatchGap: s.Takeover / 2},
	})
	c := &child{m: m, db: client.Database(s.Database), in: json.NewDecoder(bufio.NewReader(os.Stdin))}
	c.serve(t.Context())
	if err := m.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Log(err)
	}
}

type child struct {
	m     *distlock.Manager
	db    *mongo.Database
	in    *json.Decoder
	guard *distlock.TryGuard

	filter, update bson.D // of the prepared fenced write
	seen           int64

	queue *claim.Queue[job]
}

// serve executes orders until the input ends.
func (c *child) serve(ctx context.Context) {
	for {
		var o order
		if c.in.Decode(&o) != nil {
			return
		}
		a := answer{Do: o.Do, Process: c.m.Process()}
		if err := c.do(ctx, o, &a); err != nil {
			a.Err, a.Lost = err.Error(), errors.Is(err, distlock.ErrLockLost)
		}
		c.say(a)
	}
}

func (c *child) say(a answer) {
	line, _ := json.Marshal(a) // cannot fail: strings, numbers and booleans
	fmt.Printf("%s%s\n", marker, line)
}

func (c *child) do(ctx context.Context, o order, a *answer) (err error) {
	work := c.db.Collection("work")
	switch o.Do {
	case "lock":
		c.guard, err = c.m.Lock(o.Name).Lock(ctx, distlock.WaitAtMost(time.Minute))
		if err == nil {
			a.Fence, a.Taken, a.Process = c.guard.Fence(), c.guard.TakeoverEvidence(), c.guard.Process()
		}
		return err
	case "who": // the answer names the process
		return nil
	case "state":
		a.Ended = c.guard.Context().Err() != nil
		if a.Ended && !errors.Is(context.Cause(c.guard.Context()), distlock.ErrLockLost) {
			return fmt.Errorf("cause: %w", context.Cause(c.guard.Context()))
		}
		return c.guard.Err()
	case "release":
		return c.guard.Release()
	case "claim": // claims N rows; the handlers end with their contexts
		c.queue, err = claim.New[job](ctx, c.m, c.db.Collection(o.Name), claim.Config{Workers: o.N})
		if err != nil {
			return err
		}
		began := make(chan struct{}, o.N)
		go func() {
			_ = c.queue.Run(ctx, func(ctx context.Context, row *claim.Row[job]) error {
				began <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		for range o.N {
			<-began
			a.N++
		}
		return nil
	case "read": // reads the input of the next write, by a fenced update if Fenced is set
		if !o.Fenced {
			return c.read(work.FindOne(ctx, byID(o.Name)), a)
		}
		filter, update, err := c.guard.Fenced(byID(o.Name), increase("claims", 1))
		if err != nil {
			return err
		}
		if err := c.read(work.FindOneAndUpdate(ctx, filter, update), a); err != nil {
			return err
		}
		c.filter, c.update, err = c.guard.Fenced(byID(o.Name), c.increased())
		return err
	case "write": // does not check the guard
		filter, update := c.filter, c.update
		if !o.Fenced {
			filter, update = byID(o.Name), c.increased()
		}
		r, err := work.UpdateOne(ctx, filter, update)
		if err == nil {
			a.Matched = r.MatchedCount
		}
		return err
	case "transaction": // answers inside the transaction, and ends it at the next order
		return c.guard.InTransaction(ctx, func(ctx context.Context) error {
			_, err := work.UpdateOne(ctx, byID(o.Name), increase("n", 1000))
			c.say(answer{Do: "inside"})
			var next order
			return errors.Join(err, c.in.Decode(&next))
		})
	}
	return fmt.Errorf("what is %q?", o.Do)
}

func (c *child) read(r *mongo.SingleResult, a *answer) error {
	raw, err := r.Raw()
	if err != nil {
		return err
	}
	c.seen = raw.Lookup("n").AsInt64()
	a.N = c.seen
	return nil
}

func increase(key string, by int64) bson.D {
	return bson.D{field("$inc", bson.D{field(key, by)})}
}

func (c *child) increased() bson.D {
	return set(field("n", c.seen+1))
}

// A relative is the parent's handle of a child process.
type relative struct {
	t       testing.TB
	cmd     *exec.Cmd
	orders  *json.Encoder
	answers chan answer
	log     strings.Builder // the other output; read it only after answers is closed
	end     func()
}

// bear starts a child process on the same deployment and database.
func (w *world) bear(t testing.TB, change func(*childSettings)) *relative {
	t.Helper()
	s := childSettings{URI: w.d.uri, Database: w.db.Name(), Host: w.prefix + "child",
		Ping: paced(300 * time.Millisecond), Takeover: paced(4 * time.Second)}
	if change != nil {
		change(&s)
	}
	text := assert.Value(json.Marshal(s))(t)
	self := assert.Value(os.Executable())(t)
	r := &relative{t: t, answers: make(chan answer, 64),
		cmd: exec.Command(self, "-test.run=^TestChild$", "-test.count=1", "-test.timeout=5m")}
	r.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	in := assert.Value(r.cmd.StdinPipe())(t)
	out := assert.Value(r.cmd.StdoutPipe())(t)
	r.cmd.Stderr = r.cmd.Stdout
	r.orders = json.NewEncoder(in)
	assert.Must(t, r.cmd.Start())
	go func() { // ends with the child
		defer close(r.answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var a answer
			text, ok := strings.CutPrefix(lines.Text(), marker)
			if !ok || json.Unmarshal([]byte(text), &a) != nil {
				r.log.WriteString(lines.Text() + "\n")
				continue
			}
			r.answers <- a
		}
		_ = r.cmd.Wait() // the child's log has the result
	}()
	r.end = sync.OnceFunc(func() {
		_ = in.Close() // the child ends when its input ends
		r.resume()
		late := time.AfterFunc(20*time.Second, r.kill)
		defer late.Stop()
		for range r.answers {
		}
	})
	t.Cleanup(r.end)
	return r
}

func (r *relative) signal(s os.Signal) { _ = r.cmd.Process.Signal(s) } // the child may have ended

func (r *relative) kill() { r.signal(os.Kill) }

// tell sends an order without waiting for the answer.
func (r *relative) tell(o order) {
	r.t.Helper()
	if err := r.orders.Encode(o); err != nil {
		r.t.Errorf("order %q: %v", o.Do, err)
	}
}

// hear returns the next answer.
func (r *relative) hear() answer {
	r.t.Helper()
	select {
	case a, ok := <-r.answers:
		if !ok {
			r.t.Fatalf("the child has ended:\n%s", r.log.String())
		}
		return a
	case <-time.After(90 * time.Second):
		r.t.Fatal("the child does not answer")
	}
	return answer{}
}

func (r *relative) ask(o order) answer {
	r.t.Helper()
	r.tell(o)
	return r.hear()
}
