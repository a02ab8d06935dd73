package study

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mongodlm/distlock"
)

// A judge follows the events of a play and computes its outcome. It is the same for every
// generation: it does not know how a lock works, only the replies to processes and the times of
// their writes.
type judge struct {
	w       *world
	tenures []*tenureRecord
	wanting []*want
	still   []pause
	written *tenureRecord // of the last write that the resource accepted
	largest int64         // fence that the resource has seen

	holder string         // that the lock document names
	named  map[string]int // the place of each holder in the order in which the document named them
	order  int
}

// A tenureRecord is the history of a lock that a process has acquired.
type tenureRecord struct {
	p    *process
	h    tenure
	n    int // its place in the order in which the document named the holders: the larger, the newer
	From time.Duration
	// Until is the end of the guard, by the clock of its holder or by its release; the end of the
	// play for a guard that is still valid then. A frozen holder learns of the end when it runs
	// again.
	Until  time.Duration
	Learnt time.Duration
	lapsed bool
	// Works is until when it worked: it may hang before it stops to take itself for the holder.
	Works time.Duration
	// Gone is when the lock document ceased to name it while it took itself for the holder; 0: never.
	Gone time.Duration
	// Cause is how it learnt of that, or that it cannot trust its lock; empty if it did not.
	Cause string
	Fence int64
	open  bool
}

func (t *tenureRecord) label() string {
	if t.Fence > 0 {
		return fmt.Sprintf("fence %d", t.Fence)
	}
	return "the lock"
}

// A want is a contender that waits.
type want struct {
	p           *process
	from, until time.Duration // until 0: it still waits
}

// A pause is a time in which a process was paused.
type pause struct {
	p           *process
	from, until time.Duration
}

// wants notes that a process wants the lock. The caller calls the result when it has the lock, or
// stops waiting.
func (j *judge) wants(p *process) func() {
	w := &want{p: p, from: j.w.Now()}
	j.wanting = append(j.wanting, w)
	return func() { w.until = j.w.Now() }
}

func (j *judge) granted(p *process, h tenure) *tenureRecord {
	t := &tenureRecord{p: p, h: h, n: j.named[h.session()], From: j.w.Now(), Fence: h.fence(),
		open: true}
	j.tenures = append(j.tenures, t)
	j.w.record.mark(p, "holds", "has the lock"+t.fenced())
	return t
}

func (t *tenureRecord) fenced() string {
	if t.Fence == 0 {
		return ""
	}
	return fmt.Sprintf(" with fence %d", t.Fence)
}

// learnt notes that a holder learnt that it must not trust its lock.
func (j *judge) learnt(t *tenureRecord, err error) {
	if t.Cause == "" {
		t.Cause, t.Learnt = brief(err), j.w.Now()
		j.w.record.mark(t.p, "learns", "learns that it may not trust its lock: "+t.Cause)
	}
	j.shut(t)
}

// fails notes that a holder could not make sure of its lock, and works no longer under it.
func (j *judge) fails(t *tenureRecord, err error) {
	if errors.Is(err, errLost) || errors.Is(err, distlock.ErrLockLost) {
		j.learnt(t, err)
		return
	}
	j.w.record.mark(t.p, "trouble", "cannot ask whether it has the lock: "+brief(err))
	j.shut(t)
}

func (j *judge) shut(t *tenureRecord) {
	if t.open {
		t.open, t.Until = false, j.w.Now()
	}
}

func (j *judge) hangs(t *tenureRecord) {
	t.Works = j.w.Now()
	j.w.record.mark(t.p, "stop", "the thread that holds the lock hangs")
}

// died ends the tenures of a process.
func (j *judge) died(p *process) {
	for _, t := range j.tenures {
		if t.p == p {
			j.shut(t)
		}
	}
	for _, w := range j.wanting {
		if w.p == p && w.until == 0 {
			w.until = j.w.Now()
		}
	}
}

func (j *judge) pauses(p *process, d time.Duration) {
	j.still = append(j.still, pause{p, j.w.Now(), j.w.Now() + d})
}

// wrote judges a write at the resource: it is refused if it carries a smaller fence than one
// before. Without fences every write is accepted.
func (j *judge) wrote(t *tenureRecord) bool {
	stale := j.written != nil && j.written.n > t.n
	in := t.Fence == 0 || t.Fence >= j.largest
	verdict := "written"
	switch {
	case in && stale:
		verdict = "stale"
	case !in:
		verdict = "fenced"
	}
	j.w.record.write(t, verdict)
	if in {
		j.largest = max(j.largest, t.Fence)
		if !stale {
			j.written = t
		}
	}
	return in
}

// look runs before every event: it finds the holders whose own clocks have ended their guards, and
// the holders that the document no longer names.
func (j *judge) look() {
	for _, t := range j.tenures {
		if !t.open && !t.lapsed {
			continue
		}
		if t.Gone == 0 && !j.w.names(t.h.session()) {
			t.Gone = j.w.Now()
		}
		if err := t.h.trusted(); err != nil {
			j.shut(t)
			if t.lapsed = t.p.Frozen() && !t.p.Dead; !t.lapsed {
				j.learnt(t, err)
			}
		}
	}
}

// names reports whether a session holds the lock by the lock document.
func (w *world) names(session string) bool { return w.judge.holder == session }

// reads notes whom the lock document names now.
func (j *judge) reads(d document) {
	holder := ""
	if d.state() > 0 {
		holder = d.text("process") + " " + d.id("ts").Hex()
	}
	j.names(holder)
}

// names notes the holder by the lock document.
func (j *judge) names(holder string) {
	if holder != j.holder && holder != "" {
		j.order++
		j.named[holder] = j.order
	}
	j.holder = holder
}

// end closes all open records at the end of the play.
func (j *judge) end() {
	for _, t := range j.tenures {
		if t.open {
			t.Until = j.w.Now()
		}
		if t.Works == 0 || t.Works > t.Until {
			t.Works = t.Until
		}
	}
	for _, w := range j.wanting {
		if w.until == 0 {
			w.until = j.w.Now()
		}
	}
}

// An Outcome is the result of a play, computed from the replies to processes and their times.
type Outcome struct {
	// Not is why a generation cannot play the case; all other fields are zero then.
	Not string
	// Other is the outcome where the time limit of a command is before the reply that it races.
	Other *Outcome
	// None is true if no process ever acquired the lock.
	None bool
	// Two is for how long two processes ran at a time that both took themselves for the holder.
	Two time.Duration
	// TwoTrusted is the same, and frozen processes count too.
	TwoTrusted time.Duration
	// TwoFrom is when that was so first.
	TwoFrom time.Duration
	// Idle is the longest time for which a living process wanted the lock and no process worked under
	// it.
	Idle time.Duration
	// GaveUp is true if the waiters did not get it in that time.
	GaveUp bool
	// Stale counts the writes of an older holder that went in after one of a newer holder.
	Stale int
	// Fenced counts the writes that the fence refused.
	Fenced int
	// Overtaken is how often, at most, the lock went to a later process than a waiter.
	Overtaken int
	// Losses are the holders that lost the lock, and when they learnt of it.
	Losses []Loss
}

// worthTelling is the least idle time that is printed: takeovers and polls take a while.
const worthTelling = time.Minute

// Parts describes the outcome of a play in short phrases: the holders, the time in which the lock
// was wanted and idle, the result of late writes, and the number of times that a waiter was passed
// over.
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
	switch {
	case o.GaveUp:
		parts = append(parts, "stuck for "+Span(o.Idle)+", given up")
	case o.Idle >= worthTelling:
		parts = append(parts, "idle for "+Span(o.Idle))
	}
	if o.Stale > 0 {
		parts = append(parts, fmt.Sprintf("%d stale written", o.Stale))
	}
	if o.Fenced > 0 {
		parts = append(parts, fmt.Sprintf("%d stale refused", o.Fenced))
	}
	if o.Overtaken > 1 {
		parts = append(parts, fmt.Sprintf("overtaken %d times", o.Overtaken))
	}
	if o.Other != nil {
		parts = append(parts, "or, if the limit is first: "+strings.Join(o.Other.Parts(), ", "))
	}
	return parts
}

// String is Parts in one line.
func (o Outcome) String() string { return strings.Join(o.Parts(), ", ") }

// Shape returns the kind of failure of a generation: two holders, stuck, a stale write, starved, or
// late, which is longer than a takeover; "-" without a failure, and "no" for a case that cannot be
// played. A process that wakes, and asks before it writes, is a holder for the time of a request,
// which is harmless.
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

// String describes when the holder learnt of its loss.
func (l Loss) String() string {
	switch {
	case l.Learnt == 0:
		return l.Process + " never learns"
	case l.At > 0 && l.Stopped > l.At:
		return fmt.Sprintf("%s learns %s later", l.Process, Span(l.Learnt-l.At))
	case l.Next > 0 && l.Learnt > l.Stopped:
		return fmt.Sprintf("%s's guard ends %s before, and it learns on waking", l.Process,
			Span(l.Next-l.Stopped))
	case l.Next > 0:
		return fmt.Sprintf("%s stops %s before", l.Process, Span(l.Next-l.Stopped))
	}
	return l.Process + " stops by itself"
}

// A Loss is the loss of a lock by the action of another process or client.
type Loss struct {
	Process string
	// At is when the lock document ceased to name the holder, 0 if it still did when the holder
	// learnt.
	At time.Duration
	// Stopped is the end of its guard by its own clock or release, and Learnt the time when it knew
	// that it must not trust its lock; 0: it never did.
	Stopped, Learnt time.Duration
	// Next is when the next holder got its reply; 0: there was no next holder.
	Next time.Duration
}

// outcome computes.
func (j *judge) outcome() Outcome {
	o := Outcome{None: len(j.tenures) == 0}
	instants := []time.Duration{0, j.w.Now()}
	for _, t := range j.tenures {
		instants = append(instants, t.From, t.Until, t.Works)
	}
	for _, w := range j.wanting {
		instants = append(instants, w.from, w.until)
	}
	for _, p := range j.still {
		instants = append(instants, p.from, p.until)
	}
	slices.Sort(instants)
	instants = slices.Compact(instants)
	idle := time.Duration(0)
	for i, from := range instants[:len(instants)-1] {
		d := instants[i+1] - from
		trusted, running, working := j.holders(from)
		if len(running) > 1 {
			if o.Two == 0 {
				o.TwoFrom = from
			}
			o.Two += d
			for _, t := range running {
				j.w.record.two(t.p, from, instants[i+1])
			}
		}
		if trusted > 1 {
			o.TwoTrusted += d
		}
		switch {
		case working > 0:
			idle = 0
		case !j.wanted(from):
			o.GaveUp = o.GaveUp || idle > 0 && idle == o.Idle
			idle = 0
		default:
			if idle += d; idle >= o.Idle {
				o.Idle, o.GaveUp = idle, instants[i+1] == j.w.Now()
			}
		}
	}
	o.GaveUp = o.GaveUp && o.Idle >= worthTelling
	for _, e := range j.w.record.out.Writes {
		switch e.Verdict {
		case "stale":
			o.Stale++
		case "fenced":
			o.Fenced++
		}
	}
	o.Overtaken = j.overtaken()
	for _, t := range j.tenures {
		if t.Gone > 0 || t.Cause != "" {
			l := Loss{Process: t.p.name, At: t.Gone, Learnt: t.Learnt, Stopped: t.Until}
			for _, next := range j.tenures {
				if next.n > t.n && (l.Next == 0 || next.From < l.Next) {
					l.Next = next.From
				}
			}
			o.Losses = append(o.Losses, l)
		}
	}
	return o
}

// holders counts the processes that believe to hold the lock at an instant, the running ones among
// them, and the working ones.
func (j *judge) holders(at time.Duration) (trusted int, running []*tenureRecord, working int) {
	for _, t := range j.tenures {
		if t.From > at || t.Until <= at {
			continue
		}
		trusted++
		if slices.ContainsFunc(j.still,
			func(p pause) bool { return p.p == t.p && p.from <= at && at < p.until }) {
			continue
		}
		running = append(running, t)
		if at < t.Works {
			working++
		}
	}
	return trusted, running, working
}

func (j *judge) wanted(at time.Duration) bool {
	return slices.ContainsFunc(j.wanting, func(w *want) bool { return w.from <= at && at < w.until })
}

// overtaken finds the waiter that the most later processes have overtaken.
func (j *judge) overtaken() (most int) {
	for _, w := range j.wanting {
		n := 0
		for _, t := range j.tenures {
			for _, o := range j.wanting {
				if o.p == t.p && o.p != w.p && o.until == t.From && o.from > w.from && t.From < w.until {
					n++
				}
			}
		}
		most = max(most, n)
	}
	return most
}
