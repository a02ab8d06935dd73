package simulation

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/test/fault"
)

// A call is one command or one notice of a process.
type call struct {
	p       *process
	op      fault.Op
	subject string // name of the lock, or process id
	writes  bool
	// mayBeOld is set if a fault can make the store answer with an old state.
	mayBeOld bool
	ts       bson.ObjectID // session in the command, if any
	request  catalog.Request
	from     catalog.Holder
	watched  *catalog.Ping
	renewal  catalog.Renewal

	n         int // number of the command in its process
	sent      time.Duration
	reading   clock.Reading // process's clock when the command was sent
	do        func() error  // executes the command on the store
	snapshots catalog.Looks // snapshots in the answer
	old       *oldState     // old state for the answer; nil for the present state

	transaction *transaction // the command's transaction, or nil
	blocked     bool         // the command waited for a transaction
	admitted    bool         // the command was sent; guarded by the process's mu
	err         error        // error of do; set before done is closed
	done        chan struct{}
	answered    bool        // the reply has arrived
	overdue     atomic.Bool // the context is done
	expired     atomic.Bool // the process has noticed that the context is done
	note        string      // the faults that struck the command, for the timeline
}

// key returns a text that orders the simultaneous commands of a process. The order is independent
// of Go's scheduler.
func (c *call) key() string {
	return string(rune(c.p.generation)) + string(c.op) + "\x00" + c.subject + "\x00" + string(c.ts[:])
}

// submit sends a command. It returns when the answer arrives or ctx is done.
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
	if frozen { // a paused process sees its answer before the end of the context
		<-c.done
		return c.err
	}
	return c.timeout(ctx.Err())
}

func (c *call) recordSend() {
	c.p.calls++
	c.n, c.sent, c.reading = c.p.calls, c.p.w.Now(), c.p.Clock.Now()
}

// unsent returns the error of a command that is not sent, because its context is done.
func unsent(cause error) error { return fmt.Errorf("not sent: %w", cause) }

func (c *call) timeout(cause error) error {
	if c.writes {
		return fmt.Errorf("%s: %w: %w", c.op, catalog.ErrUnknownOutcome, cause)
	}
	return fmt.Errorf("%s: %w: %w", c.op, catalog.ErrUnavailable, cause)
}

// lost returns the error of a command that the network has lost.
func (c *call) lost() error {
	if c.writes {
		return fault.Lost(c.op)
	}
	return fault.Refused(c.op)
}

// finish passes the answer to submit. Only the event loop calls finish.
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

// reply delivers the answer to the process. While the process does not run, the answer waits.
func (c *call) reply(err error) {
	c.p.WhenRunning(func() {
		if c.answered || c.expired.Load() {
			return
		}
		c.p.w.log.add("%s %s %q: %v%s", c.p, c.op, c.subject, err, c.note)
		if err == nil {
			c.p.w.oracle.replied(c)
		}
		c.finish(err)
	})
}

// execute executes a command on the store, and checks the change of the document.
func (c *call) execute() error {
	w := c.p.w
	if c.p.Buried() {
		return fault.Refused(c.op)
	}
	w.done.Stats["commands"]++
	p := c.p
	former := c.request.Process != "" && c.request.Process != p.id()
	if c.ts != (bson.ObjectID{}) &&
		(p.over() || former || c.blocked && (p.closing != nil || p.ctx.Err() != nil)) {
		w.oracle.tooLate[c.ts], w.oracle.tooLate[c.entering()] = true, true
	}
	collection := c.collection()
	if collection == "" {
		return c.do()
	}
	before := w.Server.Document(collection, c.subject)
	err := c.do()
	after := w.Server.Document(collection, c.subject)
	if !bytes.Equal(before, after) {
		w.store.note(collection, c.subject, after)
	}
	if collection == catalog.PingsCollection {
		w.oracle.pingWritten(c, before, after)
	} else {
		w.oracle.lockWritten(c, before, after, err)
		w.store.notify(c.subject, before, after)
	}
	return err
}

// collection returns the collection to which a command writes, or "" for a read.
func (c *call) collection() string {
	switch {
	case !c.writes || c.subject == "":
		return ""
	case c.op == fault.Ping, c.op == fault.Condemn, c.op == fault.Witness, c.op == fault.RemovePing:
		return catalog.PingsCollection
	}
	return catalog.LocksCollection
}

func (c *call) who() string { return fmt.Sprintf("%s %s", c.p, c.op) }
