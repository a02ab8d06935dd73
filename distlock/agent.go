package distlock

import (
	"errors"
	"slices"
	"sync"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/contend"
	"mongodlm/internal/waitqueue"
)

// Bounds of an agent.
const (
	// maxEntries is the number of entries of a process in the queue of one lock. The second entry is
	// queued by the time the first one is granted, so a hand-over never waits for an entry to be sent.
	maxEntries = 2
	// crowded is the number of queued entries from which a process keeps only one of its own.
	crowded = catalog.MaxWaiters / 2
	// maxOrphans is the number of pending tries whose callers have gone. While there are that many, a
	// further TryLock waits for one of them to end.
	maxOrphans = 2
	// leastSpare is the shortest time for which an entry without a call is kept.
	leastSpare = 10 * time.Millisecond
)

// agents are the agents of a process, by lock name.
type agents struct {
	m *Manager

	mu     sync.Mutex // guards the fields below, all agents, and the calls and entries of those
	byName map[string]*agent
	rtt    time.Duration // round trip of a command that queues an entry, smoothed
	pause  time.Duration // after the last failure, 0 after a success
	resume time.Duration // monotonic time before which no entry is sent after a failure
}

// An agent acquires one lock for all callers of a process. Callers form one queue, first come, first
// served. The agent keeps at most maxEntries entries in the queue of the lock document. A session
// that is granted serves the first caller with the same want, and is released at once if there is
// none. Commands belong to the agent: a caller that gives up cancels nothing.
type agent struct {
	in      *agents
	m       *Manager
	name    string
	calls   []*call  // in the order in which they came
	entries []*entry // queued in the document, or on the way there
	orphans int      // tries whose callers have gone
	queued  int      // entries of all processes, as last read
	failure error    // why the last command did not help; nil after a success
}

// A want is the part of a request that the lock document records. A session acquired for one call
// serves any other call with the same want.
type want struct {
	mode  catalog.Mode
	limit int32
	why   string
	label string
	// standby is set for callers that wait until the holder is gone, such as candidates. Their entries
	// are not kept for later callers.
	standby bool
}

// join adds a call to the queue of its lock.
func (in *agents) join(c *call) {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := in.byName[c.name]
	if a == nil {
		a = &agent{in: in, m: in.m, name: c.name}
		in.byName[c.name] = a
	}
	c.agent, c.trying = a, false
	a.calls = append(a.calls, c)
	a.adjust()
}

// leave removes a call. It returns false if the call was answered before, and why the call had to
// wait: the failure of a command, or the holder as last read; nil if neither is known.
func (a *agent) leave(c *call) (left bool, why error) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	if why = a.failure; why == nil {
		for _, e := range a.entries {
			if s := e.scene(); s != nil {
				why = a.m.heldError(*s)
				break
			}
		}
	}
	if !a.remove(c) {
		return false, why
	}
	if c.trying {
		a.orphans++
	}
	a.adjust()
	return true, why
}

// remove reports whether the call was in the queue. The caller holds mu.
func (a *agent) remove(c *call) bool {
	i := slices.Index(a.calls, c)
	if i >= 0 {
		a.calls = slices.Delete(a.calls, i, i+1)
	}
	return i >= 0
}

// adjust starts the tries and entries that the calls need, and notifies entries that became spare or
// are needed again. The caller holds mu.
func (a *agent) adjust() {
	spare := slices.Clone(a.entries)
	run := a.run()
	for i, c := range a.calls {
		if c.once {
			if !c.trying && a.orphans < maxOrphans {
				c.trying = true
				a.m.loops.Go(func() { a.try(c) }) // ends with its commands
			}
			continue
		}
		fits := func(e *entry) bool { return e.want == c.o.want }
		if at := slices.IndexFunc(spare, fits); at >= 0 {
			spare = slices.Delete(spare, at, at+1)
		} else if a.hasRoom(i < run) {
			e := &entry{a: a, m: a.m, want: c.o.want, changed: make(chan struct{}, 1)}
			a.entries = append(a.entries, e)
			a.m.loops.Go(e.run) // ends when it is granted, fails or is spare, or with Close
		}
	}
	for _, e := range a.entries {
		e.setSpare(slices.Contains(spare, e))
	}
	if len(a.calls)+len(a.entries)+a.orphans == 0 {
		delete(a.in.byName, a.name)
	}
}

// run returns the number of calls at the head of the queue that can hold the lock together: shared
// calls, or as many as there are permits. Each of them gets an entry. The caller holds mu.
func (a *agent) run() int {
	if len(a.calls) == 0 || a.calls[0].o.mode == catalog.Exclusive {
		return 0
	}
	first := a.calls[0].o
	n := slices.IndexFunc(a.calls, func(c *call) bool {
		return c.o.mode != first.mode || c.o.limit != first.limit
	})
	if n < 0 {
		n = len(a.calls)
	}
	if first.mode == catalog.Permit {
		n = min(n, int(first.limit))
	}
	return n
}

// hasRoom reports whether the agent may keep one more entry; inRun is set for a call of run. The
// caller holds mu.
func (a *agent) hasRoom(inRun bool) bool {
	n := len(a.entries)
	return n == 0 || a.queued+n < crowded && (inRun || n < maxEntries)
}

// granted ends an entry or a try with the session that it has acquired, and gives the session to a
// call: to prefer if that still waits, else to the first one with the same want.
func (a *agent) granted(s *session, e *entry, prefer *call) {
	a.in.mu.Lock()
	a.ended(e, prefer)
	served := a.serve(s, prefer)
	a.adjust()
	a.in.mu.Unlock()
	if !served {
		a.m.giveBack(s)
	}
}

// serve gives a session to a call and reports whether there was one. The caller holds mu.
func (a *agent) serve(s *session, prefer *call) bool {
	fits := func(c *call) bool { return c.o.want == s.want && c.ctx.Err() == nil }
	i := slices.Index(a.calls, prefer)
	if i < 0 || !fits(prefer) {
		i = slices.IndexFunc(a.calls, fits)
	}
	if i < 0 || clock.Over(a.m.closed) {
		return false
	}
	c := a.calls[i]
	a.calls = slices.Delete(a.calls, i, i+1)
	if c.trying && c != prefer {
		a.orphans++
	}
	c.answer <- answer{session: s}
	return true
}

// passOn gives a session whose caller has gone to another call.
func (a *agent) passOn(s *session) { a.granted(s, nil, nil) }

// failed ends an entry or a try with an error that will not pass, and returns the error to the calls
// that it concerns: to the caller of the try, to all calls with the same limit for a
// *PermitMismatchError, else to all calls that wait. With a nil error it only ends the entry or try.
func (a *agent) failed(err error, e *entry, of *call) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	a.ended(e, of)
	for _, c := range slices.Clone(a.calls) {
		concerns := c == of
		if e != nil && !c.once {
			concerns = !errors.Is(err, ErrPermitMismatch) || c.o.limit == e.want.limit
		}
		if err != nil && concerns {
			a.remove(c)
			c.answer <- answer{err: err}
		}
	}
	a.adjust()
}

// ended removes an entry, or ends the try of a call. The caller holds mu.
func (a *agent) ended(e *entry, of *call) {
	if e != nil {
		a.entries = slices.DeleteFunc(a.entries, func(o *entry) bool { return o == e })
	}
	if of == nil {
		return
	}
	if slices.Contains(a.calls, of) {
		of.trying = false
	} else {
		a.orphans--
	}
}

// needs reports whether a call still waits for an answer.
func (a *agent) needs(c *call) bool {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	return slices.Contains(a.calls, c)
}

// dismiss ends an entry if no call needs it, and reports whether it did.
func (a *agent) dismiss(e *entry) bool {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	if e.spare {
		a.ended(e, nil)
		a.adjust()
	}
	return e.spare
}

// timeLeft returns the shortest time for which a call with that want still waits; 0 without a bound.
func (a *agent) timeLeft(w want) (left time.Duration) {
	now := a.m.cfg.Clock.Now()
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	bound := func(d time.Duration) {
		if d > 0 && (left == 0 || d < left) {
			left = d
		}
	}
	for _, c := range a.calls {
		if c.o.want != w {
			continue
		}
		if at, ok := c.ctx.Deadline(); ok {
			bound(at.Sub(now.Wall))
		}
		if c.o.bounded {
			bound(c.o.wait - (now.Mono - c.o.began))
		}
	}
	return left
}

// note records why an entry cannot be granted yet; nil after an answer of the server.
func (a *agent) note(err error) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	a.failure = err
}

// answered records an answer of the server: the entries of the lock document, and the round trip.
func (a *agent) answered(queued int, took time.Duration) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	a.queued, a.failure, a.in.pause, a.in.resume = queued, nil, 0, 0
	if a.in.rtt == 0 {
		a.in.rtt = took
	}
	a.in.rtt += (took - a.in.rtt) / 4
	a.queued -= len(a.entries) // those of others
}

// backOff makes the entries of all locks pause after a command that failed: for Config.Poll, twice
// as long after each further failure, and at most for Config.PollMax.
func (in *agents) backOff() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.pause = min(max(2*in.pause, in.m.cfg.Poll), in.m.cfg.PollMax)
	in.resume = in.m.cfg.Clock.Now().Mono + in.m.pinger.Jitter(in.pause, 0.2)
}

// backedOff returns how long an entry has to pause.
func (in *agents) backedOff() time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.resume - in.m.cfg.Clock.Now().Mono
}

// waiting returns the number of calls that wait, and the longest time for which one of them has
// waited, without those on standby.
func (in *agents) waiting() (n int, oldest time.Duration) {
	now := in.m.cfg.Clock.Now().Mono
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, a := range in.byName {
		for _, c := range a.calls {
			if c.once {
				continue
			}
			n++
			if !c.o.standby {
				oldest = max(oldest, now-c.o.began)
			}
		}
	}
	return n, oldest
}

// An entry is one session of an agent in the queue of the lock document. It serves any call with
// its want.
type entry struct {
	a       *agent
	m       *Manager
	want    want
	changed chan struct{} // spare has changed; room for one
	since   time.Time     // server's clock: when it was queued, if its place was removed since

	// Guarded by the mu of the agents.
	spare  bool // no call needs it
	waiter *waitqueue.Waiter
}

// setSpare notes whether a call needs the entry. The caller holds mu.
func (e *entry) setSpare(spare bool) {
	if e.spare == spare {
		return
	}
	e.spare = spare
	select {
	case e.changed <- struct{}{}:
	default: // the entry has yet to read the last change
	}
}

// scene returns the last snapshot of the lock; nil before there is one. The caller holds mu.
func (e *entry) scene() *contend.Scene {
	if e.waiter == nil {
		return nil
	}
	return e.waiter.Scene.Load()
}
