package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/fault"
)

// opWrite is a write of a user to the protected resource.
const opWrite fault.Op = "write"

// A call is one command of a process, from its start on.
type call struct {
	p       *process
	op      fault.Op
	subject string // lock name or process id as the store sees it
	writes  bool
	// mayBeOld allows an old server to answer it.
	mayBeOld bool
	ts       bson.ObjectID // session that it names, if any
	request  catalog.Request
	from     catalog.Holder
	watched  *catalog.Ping
	renewal  catalog.Renewal

	n       int // it is the n-th command of its process
	opN     int // and the n-th of its kind
	sent    time.Duration
	mono    time.Duration               // of its process's clock when a read was sent
	reading clock.Reading               // of its clock when a ping or a renewal was sent
	do      func() error                // carries it out on the store
	looks   map[string]catalog.Snapshot // snapshots of its answer, by lock
	picture *picture                    // state that an old server shows it; nil for the present one
	show    func() string               // its answer, for the timeline

	inside   *inside // the transaction of which it is a part
	blocked  bool    // it has waited for a transaction
	admitted bool    // it was sent; guarded by the process's mu
	err      error   // of do; set before done is closed
	done     chan struct{}
	answered bool        // the reply is there
	overdue  atomic.Bool // its context is done
	expired  atomic.Bool // and the process has noticed
	note     string      // the fault that struck it
	unaware  bool        // of a release: see oracle.mayRelease
}

// key orders the commands that a process sends at one instant, independently of the Go scheduler.
func (c *call) key() string {
	return string(rune(c.p.life)) + string(c.op) + "\x00" + c.subject + "\x00" + string(c.ts[:])
}

// submit sends a command and waits for its answer, like a process: until its context is done.
func (c *call) submit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return unsent(err)
	}
	p := c.p
	c.done = make(chan struct{})
	p.mu.Lock()
	if p.Buried() {
		p.mu.Unlock()
		return fault.Refused(c.op)
	}
	p.open = append(p.open, c)
	p.mu.Unlock()
	w := p.w
	w.Post(p.Index, c.key(), func() { p.WhenRunning(func() { w.admit(c) }) })
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	c.overdue.Store(true)
	p.mu.Lock()
	frozen, admitted := p.Frozen(), c.admitted
	if !frozen {
		c.expired.Store(true)
	}
	p.mu.Unlock()
	if !frozen && !admitted {
		return unsent(ctx.Err())
	}
	if frozen { // it will notice when it runs again; a reply that is there by then counts
		<-c.done
		return c.err
	}
	return c.timeout(ctx.Err())
}

// unsent is the error of a command with a context that was done before it was to be sent, or in
// that instant: the Go scheduler would decide between the two.
func unsent(cause error) error { return fmt.Errorf("not sent: %w", cause) }

// timeout is the error of a command that has timed out.
func (c *call) timeout(cause error) error {
	if c.writes {
		return fmt.Errorf("%s: %w: %w", c.op, catalog.ErrUnknownOutcome, cause)
	}
	return fmt.Errorf("%s: %w: %w", c.op, catalog.ErrUnavailable, cause)
}

// lost is the error of a command that broke in transit.
func (c *call) lost() error {
	if c.writes {
		return fault.Lost(c.op)
	}
	return fault.Refused(c.op)
}

// finish gives the process the answer. It belongs to the loop of the world.
func (c *call) finish(err error) {
	if c.answered {
		return
	}
	c.answered = true
	c.err = err
	p := c.p
	p.mu.Lock()
	if i := slices.Index(p.open, c); i >= 0 {
		p.open = slices.Delete(p.open, i, i+1)
	}
	p.mu.Unlock()
	close(c.done)
}

// reply answers a command when its process runs.
func (c *call) reply(err error) {
	c.p.WhenRunning(func() {
		if c.answered || c.expired.Load() {
			return
		}
		w := c.p.w
		if w.s.Trace {
			w.log.reply(c, err)
		}
		if err == nil {
			w.judge.replied(c)
		}
		c.finish(err)
	})
}

// carry executes a command on the store and passes its effect to the oracle.
func (c *call) carry() error {
	w := c.p.w
	if c.p.Buried() {
		return fault.Refused(c.op)
	}
	w.done.Calls++
	p := c.p
	former := c.request.Process != "" && c.request.Process != p.id()
	if c.ts != (bson.ObjectID{}) &&
		(p.over() || former || c.blocked && (p.closing != nil || p.ctx.Err() != nil)) {
		w.judge.posthumous[c.ts] = true
	}
	before := w.judge.before(c)
	err := c.do()
	w.judge.applied(c, before, err)
	if c.writes && c.op != opWrite && before.collection == catalog.LocksCollection {
		w.store.tell(c.subject, before.raw, w.Server.Document(before.collection, c.subject))
	}
	return err
}

// who returns the name of the command for the timeline.
func (c *call) who() string {
	return fmt.Sprintf("%s %s", c.p, c.op)
}

// answer returns the answer to a command for the timeline.
func (c *call) answer(err error) string {
	switch {
	case err == nil && c.show != nil:
		return c.show()
	case err == nil:
		return "done"
	case errors.Is(err, catalog.ErrNotFree):
		return "not free"
	case errors.Is(err, catalog.ErrNoMatch):
		return "no match"
	case errors.Is(err, catalog.ErrTwin):
		return "a twin's"
	case errors.Is(err, catalog.ErrCondemned):
		return "condemned"
	case errors.Is(err, catalog.ErrUnknownOutcome):
		return "outcome unknown"
	case errors.Is(err, catalog.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, catalog.ErrQueueFull):
		return "the line is full"
	case errors.Is(err, catalog.ErrPermitMismatch):
		return "another limit"
	}
	text, _, _ := strings.Cut(err.Error(), ": ")
	return "error: " + text
}
