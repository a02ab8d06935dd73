package distlock

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"mongodlm/catalog"
	"mongodlm/internal/clock"
	"mongodlm/internal/queue"
)

const (
	// maxEntries is the number of entries that a process keeps in the queue of one lock. When the
	// first entry is granted the lock, the second one is already queued.
	maxEntries = 2
	// crowded is the number of queued entries at which a process starts to keep only one entry.
	crowded = catalog.MaxWaiters / 2
	// maxOrphans limits the pending tries without callers. When there are that many, a further TryLock
	// waits until one of them ends.
	maxOrphans = 2
	// leastSpare is the shortest time for which an entry without a call is kept.
	leastSpare = 10 * time.Millisecond
)

// agents holds the agents of a process, by lock name.
type agents struct {
	m *Manager

	mu     sync.Mutex // guards the fields below, all agents, and their calls and entries
	byName map[string]*agent
	rtt    time.Duration // smoothed round trip of a command that queues an entry
}

// maxAgents is the number of agents at which sweep starts to remove idle agents.
const maxAgents = 256

// An agent acquires one lock for all callers of a process. Callers form one queue, first come,
// first served. The agent keeps at most maxEntries entries in the queue of the lock document. It
// keeps more for calls that can hold the lock together (see run). A session that is granted the
// lock serves the first caller with the same want, or is released immediately. A caller that times
// out cancels no command.
type agent struct {
	in      *agents
	m       *Manager
	name    string
	calls   []*call  // in order of arrival
	entries []*entry // queued in the document, or being sent
	orphans int      // tries without callers
	queued  int      // entries of other processes, as last read
	failure error    // error of the last command; nil after an answer

	pause  time.Duration // the pause after the last failure; 0 after an answer
	resume time.Duration // monotonic time before which no entry is sent after a failure
}

// A want is the part of a request that the lock document records. A session can serve every call
// with the same want.
type want struct {
	mode  catalog.Mode
	limit int32
	why   string
	label string
	// standby is set for callers, such as candidates, that wait until the holder is gone. Their
	// entries are not kept for later callers.
	standby bool
}

func (in *agents) join(c *call) {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := in.of(c.name)
	c.agent, c.trying = a, false
	a.calls = append(a.calls, c)
	a.adjust()
}

// of returns the agent for a lock name. The caller holds mu.
func (in *agents) of(name string) *agent {
	a := in.byName[name]
	if a == nil {
		in.sweep()
		a = &agent{in: in, m: in.m, name: name}
		in.byName[name] = a
	}
	return a
}

// sweep removes idle agents if there are at least maxAgents agents. It keeps an agent that pauses
// after a failure. The caller holds mu.
func (in *agents) sweep() {
	if len(in.byName) < maxAgents {
		return
	}
	now := in.m.cfg.Clock.Now().Mono
	maps.DeleteFunc(in.byName, func(_ string, a *agent) bool { return a.idle() && a.resume <= now })
}

// idle reports whether the agent has neither calls nor entries nor tries. The caller holds mu.
func (a *agent) idle() bool { return len(a.calls)+len(a.entries)+a.orphans == 0 }

// leave removes a call. It returns false if the call already has its answer. It also returns why
// the call waited: the reason of an entry, preferably one with the same want, else the last
// failure, or nil.
func (a *agent) leave(c *call) (left bool, why error) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	for _, e := range a.entries {
		if reason := e.reason(); reason != nil && (why == nil || e.want == c.o.want) {
			why = reason
		}
	}
	if why == nil {
		why = a.failure
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

// remove removes a call, and reports whether it was in the queue. The caller holds mu.
func (a *agent) remove(c *call) bool {
	i := slices.Index(a.calls, c)
	if i >= 0 {
		a.calls = slices.Delete(a.calls, i, i+1)
	}
	return i >= 0
}

// adjust starts the tries and entries that the calls need. It notifies each entry that became spare
// or is needed again. The caller holds mu.
func (a *agent) adjust() {
	spare := slices.Clone(a.entries)
	run := a.run()
	served := map[int32]int{} // calls that have an entry, by limit
	for i, c := range a.calls {
		if c.once {
			if !c.trying && a.orphans < maxOrphans {
				c.trying = true
				a.m.loops.Go(func() { a.try(c) }) // ends with its commands
			}
			continue
		}
		if n := served[c.o.limit]; n > 0 && n >= maxEntries && i >= run {
			continue // an entry for this call would take the place of an earlier call's entry
		}
		fits := func(e *entry) bool { return e.want == c.o.want }
		if at := slices.IndexFunc(spare, fits); at >= 0 {
			spare = slices.Delete(spare, at, at+1)
			served[c.o.limit]++
		} else if served[c.o.limit]++; a.hasRoom(c.o.limit, i < run) {
			e := &entry{a: a, m: a.m, want: c.o.want, changed: make(chan struct{}, 1)}
			a.entries = append(a.entries, e)
			a.m.loops.Go(e.run) // ends when it is granted, fails or is spare, or with Close
		}
	}
	for _, e := range a.entries {
		e.setSpare(slices.Contains(spare, e))
	}
	if a.idle() && a.pause == 0 && a.in.byName[a.name] == a {
		delete(a.in.byName, a.name)
	}
}

// run returns the number of calls at the head of the queue that can hold the lock together: shared
// calls, or as many calls as there are permits. Each of them gets an entry. The caller holds mu.
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

// hasRoom reports whether the agent may keep one more entry with that limit. inRun is set for a
// call that can hold the lock together with others (see run). Only entries with the same limit
// count toward maxEntries. The caller holds mu.
func (a *agent) hasRoom(limit int32, inRun bool) bool {
	n := 0
	for _, e := range a.entries {
		if e.want.limit == limit {
			n++
		}
	}
	return n == 0 || a.queued+len(a.entries) < crowded && (inRun || n < maxEntries)
}

// granted ends an entry or a try. It gives the session to the call prefer if possible, else to the
// first call with the same want. If there is none, it gives the session back.
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

// serve gives a session to the call prefer, or to the first other call that can use it. It returns
// false if no call can use the session. The caller holds mu.
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

// passOn gives a session without a caller to another call.
func (in *agents) passOn(s *session) {
	in.mu.Lock()
	a := in.byName[s.request.Name]
	in.mu.Unlock()
	if a == nil {
		in.m.giveBack(s)
		return
	}
	a.granted(s, nil, nil)
}

// failed ends an entry, or the try of a call. After a try, its call gets the error. After an entry,
// all calls that wait for an entry get the error, but a *PermitMismatchError goes only to calls
// with the entry's limit. If err is nil, no call gets an answer.
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

// ended removes an entry, or completes the try of a call. The caller holds mu.
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

// dismiss ends an entry that no call needs. It returns false if a call needs the entry.
func (a *agent) dismiss(e *entry) bool {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	if e.spare {
		a.ended(e, nil)
		a.adjust()
	}
	return e.spare
}

// timeLeft returns the shortest remaining time of the calls with that want, or 0 if none has a
// limit.
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

// answered records the number of queued entries of other processes, and the round trip of the
// command. It ends the pause after a failure.
func (a *agent) answered(lock catalog.Lock, process string, took time.Duration) {
	others := 0
	for _, p := range lock.Waiters {
		if p.Process != process {
			others++
		}
	}
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	a.queued, a.failure, a.pause, a.resume = others, nil, 0, 0
	if a.in.rtt == 0 {
		a.in.rtt = took
	}
	a.in.rtt += (took - a.in.rtt) / 4
}

// backOff makes the entries of the lock pause after a failed command. The pause begins at
// Config.Poll, doubles after each further failure, and is at most Config.PollMax.
func (in *agents) backOff(name string, failure error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := in.of(name)
	a.failure = failure
	a.pause = min(max(2*a.pause, a.m.cfg.Poll), a.m.cfg.PollMax)
	a.resume = a.m.cfg.Clock.Now().Mono + a.m.pinger.Jitter(a.pause, 0.2)
}

// backedOff returns the remaining pause of the entries.
func (a *agent) backedOff() time.Duration {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	return a.resume - a.m.cfg.Clock.Now().Mono
}

// waiting returns the number of waiting calls, and the longest wait of a call that is not on
// standby.
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

// An entry is one session of an agent in the queue of the lock document. It can serve every call
// with the same want.
type entry struct {
	a       *agent
	m       *Manager
	want    want
	changed chan struct{} // signals a change of spare; capacity 1
	since   time.Time     // server's clock; when an entry that was removed was queued, else zero

	// The fields below are guarded by the mu of the agents.
	spare   bool // set while no call needs the entry
	waiter  *queue.Waiter
	failure error // why the session cannot be queued
}

// setSpare records whether the entry is spare. The caller holds mu.
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

// reason returns why the entry waits: its failure, or the holder as last read, or nil. The caller
// holds mu.
func (e *entry) reason() error {
	if e.failure != nil || e.waiter == nil {
		return e.failure
	}
	if s := e.waiter.View.Load(); s != nil {
		return e.m.heldError(*s)
	}
	return nil
}

// note records why the session cannot be queued. Nil clears the record.
func (e *entry) note(failure error) {
	e.a.in.mu.Lock()
	defer e.a.in.mu.Unlock()
	e.failure = failure
}
