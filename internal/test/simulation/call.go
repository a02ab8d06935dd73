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

// A call is one command of a process.
type call struct {
	p       *process
	op      fault.Op
	subject string // lock name or process id that the store knows
	writes  bool
	// mayBeOld is set if the answer may be an old state.
	mayBeOld bool
	ts       bson.ObjectID // session in the command, if any
	request  catalog.Request
	from     catalog.Holder
	watched  *catalog.Ping
	renewal  catalog.Renewal

	n       int // number of the command in its process
	opN     int // number of the command in its process and kind
	sent    time.Duration
	mono    time.Duration               // process's clock when a read was sent
	reading clock.Reading               // process's clock when a ping or a renewal was sent
	do      func() error                // carries the command out on the store
	looks   map[string]catalog.Snapshot // snapshots in the answer, by lock
	picture *picture                    // old state for the answer; nil for the present state
	show    func() string               // formats the answer for the timeline

	inside   *inside // the command's transaction, or nil
	blocked  bool    // it waited for a transaction
	admitted bool    // the command was sent; guarded by the process's mu
	err      error   // error of do; set before done is closed
	done     chan struct{}
	answered bool        // the reply has arrived
	overdue  atomic.Bool // the context is done
	expired  atomic.Bool // the process has noticed the end of the context
	note     string      // the fault that struck the command
	unaware  bool        // for a release, see oracle.mayRelease
}

// key orders the commands that a process sends at one instant, independently of the Go scheduler.
func (c *call) key() string {
	return string(rune(c.p.life)) + string(c.op) + "\x00" + c.subject + "\x00" + string(c.ts[:])
}

// submit sends a command and waits for its answer until its context is done, like a real process.
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
	if frozen { // noticed only when the process runs again; an earlier reply counts
		<-c.done
		return c.err
	}
	return c.timeout(ctx.Err())
}

// unsent returns the error of a command whose context was done before it was sent, or in the same
// instant. In the second case Go's scheduler would otherwise choose the error.
func unsent(cause error) error { return fmt.Errorf("not sent: %w", cause) }

func (c *call) timeout(cause error) error {
	if c.writes {
		return fmt.Errorf("%s: %w: %w", c.op, catalog.ErrUnknownOutcome, cause)
	}
	return fmt.Errorf("%s: %w: %w", c.op, catalog.ErrUnavailable, cause)
}

// lost returns the error of a command that broke in transit.
func (c *call) lost() error {
	if c.writes {
		return fault.Lost(c.op)
	}
	return fault.Refused(c.op)
}

// finish gives the answer to the process. Only the loop of the world calls it.
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

// reply answers a command once its process runs.
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

// who returns the command's name in the timeline.
func (c *call) who() string {
	return fmt.Sprintf("%s %s", c.p, c.op)
}

// answer returns the command's answer in the timeline.
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
