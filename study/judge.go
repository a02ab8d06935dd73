package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mongodlm/distlock"
)

// A judge follows the events of a play and computes its outcome, in the same way for every
// generation. It uses the replies to processes, the writes of processes, and the lock document.
type judge struct {
	w       *world
	tenures []*tenure
	waits   []*wait
	written *tenure // holder of the last accepted write that was not stale
	largest int64   // largest fence at the resource
	out     Outcome
	last    time.Duration // time of the last event
	idle    time.Duration // how long no holder has worked while a process wanted the lock

	holder string         // holder in the lock document
	named  map[string]int // rank of each holder, by the time at which the document named it
	order  int
}

// A tenure is the history of one acquisition of the lock.
type tenure struct {
	*held
	p *process
	n int // rank of the holder; a larger rank is a newer holder
	// Until is the time when the holder stops trusting its lock, or 0 before that. The holder
	// releases the lock, fails a check, or has an expired guard. If lapsed is set, the guard of a
	// frozen holder has expired, and the holder has not noticed it.
	From, Until time.Duration
	lapsed      bool
	learned     bool          // the holder has learned that it cannot trust its lock
	Hung        time.Duration // when the holder hung, before Until; 0 for never
}

// A wait is a period in which a process wants the lock.
type wait struct {
	p           *process
	from, until time.Duration // until is 0 while the process waits
	overtaken   int           // how often a process that began to wait later got the lock first
}

func (w *wait) goesOn() bool { return w.until == 0 && !w.p.Dead }

// wants records that a process begins to wait for the lock. The returned function ends the wait.
func (j *judge) wants(p *process) func() {
	w := &wait{p: p, from: j.w.Now()}
	j.waits = append(j.waits, w)
	p.wait = w
	return func() { w.until = j.w.Now() }
}

func (j *judge) granted(p *process, h *held) *tenure {
	for _, w := range j.waits {
		if w.goesOn() && w.from < p.wait.from {
			w.overtaken++
			j.out.Overtaken = max(j.out.Overtaken, w.overtaken)
		}
	}
	t := &tenure{held: h, p: p, n: j.named[h.session], From: j.w.Now()}
	j.tenures = append(j.tenures, t)
	fence := ""
	if t.fence > 0 {
		fence = fmt.Sprintf(" with fence %d", t.fence)
	}
	j.w.record.mark(p, "holds", "has the lock"+fence)
	return t
}

// fails records the error of a holder's check. The holder then stops working.
func (j *judge) fails(t *tenure, err error) {
	if !errors.Is(err, errLost) && !errors.Is(err, distlock.ErrLockLost) {
		j.w.record.mark(t.p, "trouble", "cannot check whether it has the lock: "+brief(err))
	} else if !t.learned {
		t.learned = true
		j.w.record.mark(t.p, "learns", "learns that it cannot trust its lock: "+brief(err))
	}
	j.shut(t)
}

func (j *judge) shut(t *tenure) {
	t.Until = cmp.Or(t.Until, j.w.Now())
}

// wrote judges a write at the resource. The resource refuses a write whose fence is smaller than
// that of an earlier write. It accepts every write without a fence.
func (j *judge) wrote(t *tenure) {
	verdict, text := "written", "writes"
	switch {
	case t.fence > 0 && t.fence < j.largest:
		verdict, text = "fenced", "its stale write is refused by the fence"
		j.out.Fenced++
	case j.written != nil && j.written.n > t.n:
		verdict, text = "stale", "STALE WRITE: a newer holder has written"
		j.out.Stale++
	default:
		j.written = t
	}
	j.largest = max(j.largest, t.fence)
	j.w.record.count(t.p.name+text, Mark{At: j.w.Now(), Process: t.p.Index,
		Kind: "write " + verdict, Text: text})
}

// look is called before every event. It adds the time since the last event to the outcome. It then
// finds holders whose guards have expired.
func (j *judge) look() {
	j.measure()
	for _, t := range j.tenures {
		if t.p.Dead || t.Until > 0 && !t.lapsed {
			continue
		}
		if err := t.trusted(); err != nil {
			j.shut(t)
			if t.lapsed = t.p.Frozen(); !t.lapsed {
				j.fails(t, err)
			}
		}
	}
}

func (j *judge) measure() {
	from, d := j.last, j.w.Now()-j.last
	if d == 0 {
		return
	}
	j.last += d
	trusted, working := 0, false
	var running []*tenure
	for _, t := range j.tenures {
		if t.Until > 0 || t.p.Dead {
			continue
		}
		trusted++
		if !t.p.Frozen() {
			running = append(running, t)
			working = working || t.Hung == 0
		}
	}
	o := &j.out
	if trusted > 1 {
		o.TwoTrusted += d
	}
	if len(running) > 1 {
		if o.Two == 0 {
			o.TwoFrom = from
		}
		o.Two += d
		for _, t := range running {
			j.w.record.span(t.p, "two", from, j.last)
		}
	}
	switch {
	case working:
		j.idle = 0
	case !slices.ContainsFunc(j.waits, (*wait).goesOn):
		o.GaveUp = o.GaveUp || j.idle > 0 && j.idle == o.Idle
		j.idle = 0
	default:
		if j.idle += d; j.idle >= o.Idle {
			o.Idle, o.GaveUp = j.idle, false
		}
	}
}

// reads records the holder that the lock document names.
func (j *judge) reads(d document) {
	holder := ""
	if d.state() > 0 {
		holder = d.text("process") + " " + d.id("ts").Hex()
	}
	if holder != j.holder && holder != "" {
		j.order++
		j.named[holder] = j.order
	}
	j.holder = holder
}

// An Outcome is the result of a play. The judge computes it from the replies to processes, the
// writes of processes, and the lock document.
type Outcome struct {
	Not   string   // reason why a generation cannot play the case; the other fields are then zero
	Other *Outcome // outcome if the time limit of a command wins a race with the reply
	None  bool     // no process ever acquired the lock
	// Two is the time during which two running processes believed that they were the holder. TwoFrom
	// is the beginning of that time. TwoTrusted is like Two, but also counts frozen processes.
	Two, TwoTrusted, TwoFrom time.Duration
	// Idle is the longest time during which a living process wanted the lock and no holder worked.
	// GaveUp is true if that time ended without a new holder.
	Idle      time.Duration
	GaveUp    bool
	Stale     int // accepted writes of an older holder after a write of a newer holder
	Fenced    int // number of writes that the fence refused
	Overtaken int // how often later processes overtook a waiter, at most
}

// Parts describes the outcome of a play in short phrases.
func (o Outcome) Parts() []string {
	if o.Not != "" {
		return []string{"not possible here"}
	}
	parts := []string{"one holder"}
	if o.None {
		parts[0] = "no holder"
	}
	if o.Two > 0 {
		parts[0] = "TWO for " + Span(o.Two)
	}
	add := func(is bool, text string) {
		if is {
			parts = append(parts, text)
		}
	}
	add(o.GaveUp, "stuck for "+Span(o.Idle)+", given up")
	add(!o.GaveUp && o.Idle >= m, "idle for "+Span(o.Idle)) // a takeover or a poll takes some time
	add(o.Stale > 0, fmt.Sprintf("%d stale written", o.Stale))
	add(o.Fenced > 0, fmt.Sprintf("%d stale refused", o.Fenced))
	add(o.Overtaken > 1, fmt.Sprintf("overtaken %d times", o.Overtaken))
	if o.Other != nil {
		parts = append(parts, "or, if the time limit wins: "+o.Other.String())
	}
	return parts
}

// String returns Parts as one line.
func (o Outcome) String() string { return strings.Join(o.Parts(), ", ") }

// Shape returns the kind of failure: two holders, stuck, a stale write, starved, or late. Late
// means idle for longer than a takeover takes. Shape returns "-" without a failure, and "no" for a
// case that the generation cannot play. Two holders for up to a second are no failure: a process
// that wakes up needs some time to ask the server whether it still has the lock.
func (o Outcome) Shape() string {
	const question, takeover, often = time.Second, 17 * time.Minute, 5
	shape := "-"
	switch {
	case o.Not != "":
		shape = "no"
	case o.Two > question:
		shape = "two"
	case o.GaveUp:
		shape = "stuck"
	case o.Stale > 0:
		shape = "stale"
	case o.Overtaken > often:
		shape = "starved"
	case o.Idle > takeover:
		shape = "late"
	}
	if o.Other != nil {
		shape += "/" + o.Other.Shape()
	}
	return shape
}

// outcome returns the outcome at the end of the play.
func (j *judge) outcome() Outcome {
	j.measure()
	o, now := j.out, j.w.Now()
	o.None = len(j.tenures) == 0
	o.GaveUp = (o.GaveUp || j.idle > 0 && j.idle == o.Idle) && o.Idle >= m
	for _, t := range j.tenures {
		until := cmp.Or(t.Until, t.p.died, now)
		works := cmp.Or(t.Hung, until)
		j.w.record.span(t.p, "holds", t.From, works)
		if works < until {
			j.w.record.span(t.p, "hangs", works, until)
		}
	}
	for _, w := range j.waits {
		j.w.record.span(w.p, "waits", w.from, cmp.Or(w.until, w.p.died, now))
	}
	return o
}
