package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A Kind is the purpose of a command. The kinds are the same for all generations.
type Kind string

const (
	Ping     Kind = "ping"
	Read     Kind = "read"
	Insert   Kind = "insert" // of a new lock
	Grab     Kind = "grab"
	Finalize Kind = "finalize"
	Sight    Kind = "sight"     // a record for later contenders
	Take     Kind = "take over" // ends the lock of another process
	Release  Kind = "release"
	Reread   Kind = "read again" // read after a write
	Clean    Kind = "clean"
	Clock    Kind = "clock"
	Write    Kind = "write" // to the protected resource
	Ask      Kind = "ask"   // of a queued waiter
)

func (k Kind) writes() bool { return !slices.Contains([]Kind{Read, Reread, Clock, Write, Ask}, k) }

type command struct {
	p       *process
	kind    Kind
	op      string        // name of the command
	text    string        // full command
	apply   func() error  // executes the command
	answer  func() string // formats the reply; nil if the reply is only success
	limit   time.Duration // longest wait for the reply; 0 for no limit
	sent    time.Duration
	err     error // set before done is closed
	done    chan struct{}
	replied bool
	struck  turn   // accident of the command
	changed bool   // the command has changed a document
	source  string // source line of the command; empty for this module
}

// An accident is a fault of a command.
type accident string

const (
	refused    accident = "refused"          // no server can be reached
	replyLost  accident = "reply lost"       // carried out, but the reply is lost
	late       accident = "carried out late" // no reply, and the command is carried out d later
	delayed    accident = "slow"             // arrives d later
	pauseAfter accident = "then it freezes"  // the process freezes for d after the command
)

// send sends a command to the server and waits for its reply. If the process is buried meanwhile,
// the calling goroutine ends.
func (p line) send(kind Kind, op, text string, apply func() error, answer func() string) error {
	c := &command{p: p.process, source: p.source, kind: kind, op: fmt.Sprintf("%s (%s)", kind, op),
		text: text, apply: apply, answer: answer, limit: p.limit}
	c.submit()
	p.await(c.done)
	return c.err
}

func (c *command) submit() {
	c.done = make(chan struct{})
	c.p.w.Post(c.p.Index, string(c.kind)+c.op, func() { c.p.WhenRunning(c.leave) })
}

func (c *command) reply(err error) {
	w, frozen := c.p.w, c.p.Frozen()
	c.p.WhenRunning(func() {
		if c.replied || c.p.Buried() {
			return
		}
		if frozen && c.limit > 0 && w.Now()-c.sent >= c.limit {
			if w.raced = true; w.limit { // the timer fired first, and the answer is dropped
				err = errLimit
			}
		}
		w.record.exchange(c, err)
		c.replied, c.err = true, err
		close(c.done)
	})
}

func (c *command) leave() {
	p, w := c.p, c.p.w
	c.sent = w.Now()
	if p.Buried() {
		return
	}
	p.counts[c.kind]++
	for _, o := range w.stops {
		if c.struck.what == "" && o.p == p && o.kind == c.kind && !o.used && o.nth == p.counts[c.kind] {
			o.used, c.struck = true, *o
		}
	}
	request, what := way, c.struck.what
	switch {
	case c.kind != Write && p.cut, w.outage && w.refuses(c.kind), what == refused:
		w.After(2*way, func() { c.reply(errUnreachable) })
		return
	case what == late:
		request = c.struck.d
		w.After(way, func() { c.reply(errNoReply) })
	case what == delayed:
		request += c.struck.d
	}
	w.After(request, c.arrive)
}

// refuses reports whether an outage blocks commands of the given kind. Mirrored config servers can
// be read even if only one is up (r2.0.9 client/syncclusterconnection.cpp:230, 294). A replica set
// can be read only while it has a primary (r3.2.22
// s/catalog/replset/dist_lock_catalog_impl.cpp:64).
func (w *world) refuses(k Kind) bool {
	return k != Write && (w.generation.replicaSet || k.writes())
}

func (c *command) arrive() {
	w := c.p.w
	if c.p.Buried() {
		return
	}
	err := c.apply()
	if err == nil && c.kind.writes() {
		c.changed = w.record.changes(c.p)
	}
	if c.replied {
		w.record.mark(c.p, "late", fmt.Sprintf("its %s is carried out only now", c.kind))
	}
	if c.struck.what == pauseAfter {
		c.p.pause(c.struck.d)
	}
	if c.struck.what == replyLost {
		err = errNoReply
	}
	w.After(way, func() { c.reply(err) })
}

// wait waits for the reply to a command of package distlock. If ctx ends and the process is not
// frozen, it returns errNoReply.
func (c *command) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		if !c.p.Frozen() {
			return errNoReply
		}
	case <-c.p.ctx.Done():
	}
	select { // a frozen process notices the end of ctx later, and a reply in the meantime counts
	case <-c.done:
		return c.err
	case <-c.p.ctx.Done():
		return errUnreachable
	}
}
