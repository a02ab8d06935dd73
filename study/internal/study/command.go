package study

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// A Kind is the purpose of a command, the same for all generations.
type Kind string

// The kinds of commands.
const (
	Ping     Kind = "ping"
	Read     Kind = "read"
	Insert   Kind = "insert" // of a lock that is new
	Grab     Kind = "grab"
	Finalize Kind = "finalize"
	Sight    Kind = "sight"     // a note for contenders that come later
	Take     Kind = "take over" // the command that ends another's lock
	Release  Kind = "release"
	Reread   Kind = "read again" // after a write
	Clean    Kind = "clean"
	Clock    Kind = "clock"
	Write    Kind = "write" // to the protected resource
	Ask      Kind = "ask"   // in line
)

// writes reports whether commands of the kind change documents of the config server.
func (k Kind) writes() bool { return !slices.Contains([]Kind{Read, Reread, Clock, Write, Ask}, k) }

// A command is one of a process, from the moment it is sent.
type command struct {
	p       *process
	kind    Kind
	op      string        // the command, in a word
	text    func() string // and all of it
	apply   func() error  // carries it out
	answer  func() string // the reply, if it is more than success
	limit   time.Duration // how long the process waits for the answer; 0: for ever
	sent    time.Duration
	err     error // set before done is closed
	done    chan struct{}
	replied bool
	struck  turn   // the fault that hit it
	changed bool   // it has changed a document
	source  string // the line of the source that sends it; empty in ours
}

// A stop is something that happens to one command: the nth of its kind that a process sends.
type stop struct {
	p *process
	turn
	used bool
}

// An accident is a fault of a command.
type accident string

const (
	refused    accident = "refused"          // no server can be reached
	replyLost  accident = "reply lost"       // it is carried out, the reply never comes
	late       accident = "carried out late" // the caller gets no reply, and it is carried out d later
	delayed    accident = "slow"             // it takes d to arrive
	pauseAfter accident = "then it freezes"  // for d, after it was carried out
)

// send sends a command and waits for its answer. The goroutine of a process that dies meanwhile
// ends here.
func (p *process) send(source string, kind Kind, op string, text func() string, apply func() error,
	answer func() string) error {
	c := &command{p: p, source: source, kind: kind, op: op, text: text, apply: apply,
		answer: answer, limit: p.limit}
	if kind == Ping && p.beat > 0 {
		c.limit = p.beat
	}
	c.submit()
	select {
	case <-c.done:
	case <-p.over:
		runtime.Goexit()
	}
	return c.err
}

// submit hands a command to the world.
func (c *command) submit() {
	c.done = make(chan struct{})
	p := c.p
	p.mu.Lock()
	p.open = append(p.open, c)
	p.mu.Unlock()
	p.w.Post(p.Index, string(c.kind)+c.op, func() { p.WhenRunning(c.leave) })
}

// finish lets the process have the answer.
func (c *command) finish(err error) {
	if c.replied {
		return
	}
	c.replied, c.err = true, err
	c.p.mu.Lock()
	c.p.open = slices.DeleteFunc(c.p.open, func(o *command) bool { return o == c })
	c.p.mu.Unlock()
	close(c.done)
}

// reply answers a command when its process runs.
func (c *command) reply(err error) {
	frozen := c.p.Frozen()
	c.p.WhenRunning(func() {
		if frozen && !c.p.Buried() && c.limit > 0 && c.p.w.Now()-c.sent >= c.limit && !c.replied {
			if c.p.w.raced = true; c.p.w.limit { // the timer fired, and the answer is dropped
				err = errLimit
			}
		}
		if !c.replied {
			c.p.w.record.exchange(c, err)
			c.finish(err)
		}
	})
}

// leave applies the accidents of a command that is sent.
func (c *command) leave() {
	p, w := c.p, c.p.w
	c.sent = w.Now()
	if p.Buried() {
		c.finish(errUnreachable)
		return
	}
	p.counts[c.kind]++
	for _, o := range w.stops {
		if c.struck.what == "" && o.p == p && o.kind == c.kind && !o.used && o.nth == p.counts[c.kind] {
			o.used, c.struck = true, o.turn
		}
	}
	request, what := w.way, c.struck.what
	switch {
	case c.kind != Write && p.cut > 0, w.outage > 0 && w.refuses(c.kind), what == refused:
		w.After(2*w.way, func() { c.reply(errUnreachable) })
		return
	case what == late:
		request = c.struck.d
		w.After(w.way, func() { c.reply(errNoReply) })
	case what == delayed:
		request += c.struck.d
		if c.limit > 0 && c.limit < request {
			w.After(max(0, c.limit-w.way), func() { c.reply(errLimit) })
		}
	}
	w.After(request, c.arrive)
}

// refuses reports whether an outage reaches commands of a kind: of mirrored config servers one is
// enough to read from (r2.0.9 client/syncclusterconnection.cpp:230, 294), a replica set is read
// from its primary only (r3.2.22 s/catalog/replset/dist_lock_catalog_impl.cpp:64).
func (w *world) refuses(k Kind) bool {
	return k != Write && (w.generation.replicaSet || k.writes())
}

// arrive carries a command out and answers it.
func (c *command) arrive() {
	w := c.p.w
	if c.p.Buried() {
		return
	}
	err := c.apply()
	if err == nil && c.kind.writes() {
		c.changed = w.record.changes(c.p)
	}
	if c.changed && c.kind == Release {
		c.p.writes++
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
	w.After(w.way, func() { c.reply(err) })
}

// wait waits for the reply to a command of package distlock. It returns when ctx ends, if the
// process runs and can notice that.
func (c *command) wait(ctx context.Context) error {
	select {
	case <-c.done:
	case <-ctx.Done():
		if !c.p.Frozen() {
			return errNoReply
		}
		<-c.done // it notices when it runs again; a reply that is there by then counts
	}
	return c.err
}
