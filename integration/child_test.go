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
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/claim"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// childEnv is the environment variable that makes the test program run as a child. See TestChild.
const childEnv = "MONGODLM_IT_CHILD"

// An order is one line of a child's input.
type order struct {
	Do   string // the operation, see child.do
	Name string // the name of a lock and its document, or of a collection
	N    int
}

// An answer is one line of a child's output.
type answer struct {
	Fence   int64
	Taken   string // evidence of a takeover
	Err     string // text of the error
	Lost    bool   // the error matches ErrLockLost
	Ended   bool   // the guard's context has ended
	Matched int64  // documents that a write matched
}

type childSettings struct {
	URI, Database, Host string
	Ping, Takeover      time.Duration
}

const marker = "child: " // the start of each answer

// TestChild is the main function of a child process, and not a test.
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
	c := &child{m: m, db: client.Database(s.Database)}
	c.serve(t.Context())
	if err := m.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Log(err)
	}
}

type child struct {
	m     *distlock.Manager
	db    *mongo.Database
	guard *distlock.TryGuard

	filter, update bson.D // of the prepared fenced write
}

// serve executes orders until the input ends.
func (c *child) serve(ctx context.Context) {
	for in := json.NewDecoder(os.Stdin); ; {
		var o order
		if in.Decode(&o) != nil {
			return
		}
		var a answer
		if err := c.do(ctx, o, &a); err != nil {
			a.Err, a.Lost = err.Error(), errors.Is(err, distlock.ErrLockLost)
		}
		line, _ := json.Marshal(a) // cannot fail: strings, numbers and booleans
		fmt.Printf("%s%s\n", marker, line)
	}
}

func (c *child) do(ctx context.Context, o order, a *answer) (err error) {
	switch o.Do {
	case "lock": // also prepares a fenced write
		c.guard, err = c.m.Lock(o.Name).Lock(ctx, distlock.WaitAtMost(time.Minute))
		if err != nil {
			return err
		}
		a.Fence, a.Taken = c.guard.Fence(), c.guard.TakeoverEvidence()
		c.filter, c.update, err = c.guard.Fenced(byID(o.Name), increase("n", 1))
		return err
	case "state":
		a.Ended = c.guard.Context().Err() != nil
		return c.guard.Err()
	case "release":
		return c.guard.Release()
	case "write": // does not check the guard
		r, err := c.db.Collection("work").UpdateOne(ctx, c.filter, c.update)
		if err == nil {
			a.Matched = r.MatchedCount
		}
		return err
	case "claim": // claims N rows; the handlers end with their contexts
		cfg := claim.Config{Workers: o.N}
		queue, err := claim.New[job](ctx, c.m, c.db.Collection(o.Name), cfg)
		if err != nil {
			return err
		}
		began := make(chan struct{}, o.N)
		go func() { // ends with ctx
			_ = queue.Run(ctx, func(ctx context.Context, _ *claim.Row[job]) error {
				began <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		for range o.N {
			<-began
		}
		return nil
	}
	return fmt.Errorf("what is %q?", o.Do)
}

func increase(key string, by int64) bson.D {
	return bson.D{field("$inc", bson.D{field(key, by)})}
}

// A relative is the parent's handle of a child process.
type relative struct {
	t       testing.TB
	cmd     *exec.Cmd
	orders  *json.Encoder
	answers chan answer
	log     strings.Builder // the other output; read it only after answers is closed
}

// bear starts a child process that uses the database of the world.
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
	t.Cleanup(func() {
		_ = in.Close() // the child ends when its input ends
		r.resume()
		late := time.AfterFunc(20*time.Second, r.kill)
		defer late.Stop()
		for range r.answers {
		}
	})
	return r
}

func (r *relative) signal(s os.Signal) { _ = r.cmd.Process.Signal(s) } // the child may have ended

func (r *relative) kill() { r.signal(os.Kill) }

func (r *relative) tell(o order) {
	r.t.Helper()
	if err := r.orders.Encode(o); err != nil {
		r.t.Errorf("order %q: %v", o.Do, err)
	}
}

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

// processed lists the deployments for tests that stop or kill child processes.
var processed = named("embedded", "standalone", "replicaset")

// B1, B2, B9, I5: A holder is stopped between the check of its guard and its write. Another process
// takes over and writes. When the stopped holder continues, its guard is lost and its context ends.
// Its fenced write matches no document, and its release changes nothing.
func TestFaults_HolderStopped_ComesBackToNothing(t *testing.T) {
	t.Parallel()
	forThese(t, processed, func(t *testing.T, w *world) {
		name := w.name("balancer")
		w.plantCounter(t, name)
		holder, other := w.bear(t, nil), w.bear(t, nil)
		lock := func(r *relative) (a answer) {
			for a = r.ask(order{Do: "lock", Name: name}); a.Lost; { // if the machine is slow
				a = r.ask(order{Do: "lock", Name: name})
			}
			return a
		}
		old := lock(holder)
		holder.stop()
		if next := lock(other); next.Err != "" || next.Fence <= old.Fence || next.Taken == "" {
			t.Fatalf("not taken over: %+v", next)
		}
		if r := other.ask(order{Do: "write"}); r.Matched != 1 {
			t.Fatalf("the new holder's write: %+v", r)
		}
		w.untouched(t, name, func() {
			holder.tell(order{Do: "state"}) // the first order after the pause
			holder.resume()
			if r := holder.hear(); !r.Lost {
				t.Errorf("right after the pause: %+v, want ErrLockLost", r)
			}
			eventually(t, 10*time.Second, "its context has ended", func() bool {
				return holder.ask(order{Do: "state"}).Ended
			})
			if r := holder.ask(order{Do: "write"}); r.Err != "" || r.Matched != 0 {
				t.Errorf("the stale fenced write: %+v, want nothing matched", r)
			}
			if r := holder.ask(order{Do: "release"}); !r.Lost {
				t.Errorf("Release: %+v, want ErrLockLost", r)
			}
		})
	})
}

func (w *world) plantCounter(t testing.TB, id string) {
	t.Helper()
	w.plant(t, "work", bson.D{field("_id", id), field("n", int64(0))})
}
