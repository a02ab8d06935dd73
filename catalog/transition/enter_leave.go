package transition

import (
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Seeded separates two kinds of fences. A fence of at least Seeded was counted up from the server's
// time in milliseconds. A smaller fence was counted up from zero. The next grant replaces a smaller
// fence by the server's time in milliseconds.
const Seeded = 1 << 31

// Highest is the largest fence to which a grant can add 1. A fence of this size is always the
// result of a manual edit.
const Highest = catalog.MaxCount

// MaxEnqueued is the queue length from which Leave ignores its field Enqueue.
const MaxEnqueued = catalog.MaxWaiters / 2

// Enter acquires the lock for a request, if the holders and waiters allow that. Otherwise, if How
// is Queue, Enter adds the request to the queue. If Since is zero, the request goes to the end of
// the queue. Otherwise it goes before the waiters that were queued after Since. If the session is
// already in the document, Enter does nothing. Errors:
//   - ErrNotFree if the lock was not acquired and How is not Queue;
//   - ErrQueueFull;
//   - *PermitMismatchError.
type Enter struct {
	catalog.Request
	How catalog.EnterMode
}

func (t Enter) Next(l catalog.Lock, now time.Time) (catalog.Change, error) {
	g := t.Request
	_, holds := l.HeldBy(g.TS)
	_, waits := l.WaitedBy(g.TS)
	if holds || waits {
		return catalog.Change{}, nil
	}
	s := stateOf(l)
	if s.used() && s.limit != g.Limit {
		why := &catalog.PermitMismatchError{Name: l.Name, Recorded: s.limit, Asked: g.Limit}
		return catalog.Change{}, why
	}
	entry := participant(g, now)
	place := len(s.waiters)
	if !g.Since.Before(now) { // a clock was set back
		g.Since = time.Time{}
	}
	if !g.Since.IsZero() {
		entry.Since = g.Since
		later := func(p catalog.Participant) bool { return p.Since.After(g.Since) }
		if i := slices.IndexFunc(s.waiters, later); i >= 0 {
			place = i
		}
	}
	s.waiters = slices.Insert(slices.Clone(s.waiters), place, entry)
	s.grant(now, "")
	if len(others(s.holders, g.TS)) == len(s.holders) {
		if t.How != catalog.Queue {
			return catalog.Change{}, catalog.ErrNotFree
		}
		if before := (catalog.Lock{Waiters: others(s.waiters, g.TS)}); !before.RoomFor(g) {
			return catalog.Change{}, catalog.ErrQueueFull
		}
	}
	return s.change(), nil
}

// Leave removes a session from the holders or from the queue, and grants the lock to the next
// waiters. If there are no waiters, the Leave of an exclusive holder changes only the state. Leave
// also does so in a malformed document, see [Decide]. If the session is neither a holder nor a
// waiter, Leave returns ErrNoMatch.
//
// If Enqueue is not nil and Leave grants the lock to a waiter, Leave also adds this request to the
// end of the queue. It does not add the request in these cases:
//   - The mode of the request is not Exclusive, or the lock is used with permits.
//   - The session is already in the document.
//   - At least MaxEnqueued others are queued. So a place in a long queue stays free for processes
//     that have none.
type Leave struct {
	catalog.Session
	Enqueue *catalog.Request
}

func (t Leave) Next(l catalog.Lock, now time.Time) (catalog.Change, error) {
	if heldAlone(l, t.TS) && !l.OldSharers && len(l.Waiters) == 0 {
		return catalog.Change{Set: bson.D{{Key: "state", Value: int32(0)}}}, nil
	}
	return leave(l, t.TS, now, "", t.Enqueue)
}

// Evict removes a holder or a waiter that a contender has watched, and grants the lock as Leave
// does. Each grant contains the Evidence. Evict returns ErrNoMatch in these cases:
//   - The document no longer contains the session with the same process.
//   - Renewal is not zero, and the holder has renewed its lease since.
//   - Waits is set, and the session is no longer queued.
type Evict struct {
	catalog.Holder
	Evidence string
}

func (t Evict) Next(l catalog.Lock, now time.Time) (catalog.Change, error) {
	p, waits := l.WaitedBy(t.TS)
	if t.Waits && !waits {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	if !t.Watched(l) && !(waits && p.Process == t.Process) {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	return leave(l, t.TS, now, t.Evidence, nil)
}

func others(list []catalog.Participant, ts bson.ObjectID) []catalog.Participant {
	gone := func(p catalog.Participant) bool { return p.TS == ts }
	return slices.DeleteFunc(slices.Clone(list), gone)
}

func leave(l catalog.Lock, ts bson.ObjectID, now time.Time, why string, next *catalog.Request) (
	catalog.Change, error,
) {
	s := stateOf(l)
	holders, waiters := others(s.holders, ts), others(s.waiters, ts)
	if len(holders) == len(s.holders) && len(waiters) == len(s.waiters) {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	s.moved = len(holders) < len(s.holders)
	s.holders, s.waiters = holders, waiters
	s.grant(now, why)
	if next != nil && len(s.grants) > 0 && s.accepts(*next) {
		s.waiters = append(slices.Clone(s.waiters), participant(*next, now))
	}
	return s.change(), nil
}

// accepts reports whether a request can be added to the end of the queue of a held lock, where it
// must wait.
func (s *state) accepts(r catalog.Request) bool {
	known := func(p catalog.Participant) bool { return p.TS == r.TS }
	return r.Mode == catalog.Exclusive && s.limit == r.Limit && len(s.waiters) < MaxEnqueued &&
		!slices.ContainsFunc(s.holders, known) && !slices.ContainsFunc(s.waiters, known)
}

// GrantNext grants a free lock to the first waiters. That is necessary after a foreign manager
// freed the lock, because a foreign manager does not grant the lock to a waiter. If no waiter can
// be granted the lock, GrantNext returns ErrNoMatch.
type GrantNext struct{ Name string }

func (t GrantNext) Next(l catalog.Lock, now time.Time) (catalog.Change, error) {
	s := stateOf(l)
	if !l.Held {
		s.grant(now, "")
	}
	if len(s.grants) == 0 {
		return catalog.Change{}, catalog.ErrNoMatch
	}
	return s.change(), nil
}

type state struct {
	name     string
	holders  []catalog.Participant
	waiters  []catalog.Participant
	limit    int32
	fence    int64
	evidence string
	grants   []catalog.Grant
	moved    bool // the holders have changed
}

func stateOf(l catalog.Lock) state {
	return state{
		name: l.Name, holders: l.Holders(), waiters: l.Waiters, fence: l.Fence, limit: l.Limit,
	}
}

func (s *state) used() bool { return len(s.holders) > 0 || len(s.waiters) > 0 }

// room returns the number of further holders that the lock may have, all with the mode and limit of
// next.
func (s *state) room(next catalog.Participant) int {
	held := len(s.holders)
	switch {
	case held == 0 && next.Mode == catalog.Exclusive:
		return 1
	case held > 0 && (next.Mode == catalog.Exclusive || s.holders[0].Mode != next.Mode):
		return 0
	case next.Mode == catalog.Shared:
		return max(0, catalog.MaxHolders-held)
	}
	return max(0, min(int(next.Limit), catalog.MaxHolders)-held)
}

// grant grants the lock to waiters at the head of the queue, as many as the present holders allow.
// All new holders have the same mode and limit.
func (s *state) grant(now time.Time, evidence string) {
	if len(s.waiters) == 0 || s.fence > Highest {
		return
	}
	first := s.waiters[0]
	run := slices.IndexFunc(s.waiters, func(p catalog.Participant) bool {
		return p.Mode != first.Mode || p.Limit != first.Limit
	})
	if run < 0 {
		run = len(s.waiters)
	}
	n := min(run, s.room(first))
	if n == 0 {
		return
	}
	s.fence = lastFence(s.fence, now)
	holders := slices.Clone(s.holders)
	for _, p := range s.waiters[:n] {
		s.fence++
		p.Fence, p.Since = s.fence, now
		holders = append(holders, p)
		s.grants = append(s.grants, catalog.Grant{
			Session: catalog.Session{Name: s.name, TS: p.TS}, Process: p.Process, Fence: p.Fence,
			Evidence: evidence,
		})
	}
	s.holders, s.waiters, s.moved, s.evidence = holders, s.waiters[n:], true, evidence
}

// lastFence returns the fence to which the next grant adds 1.
func lastFence(fence int64, now time.Time) int64 {
	if fence < Seeded {
		return max(fence, now.UnixMilli()-1)
	}
	return fence
}

// Passage returns the change for a session that holds a lock only inside a transaction. In the
// document, the lock stays free.
func Passage(l catalog.Lock, g catalog.Request, now time.Time) catalog.Change {
	c := taken(l, g, now)
	c.Set[0].Value = lastFence(l.Fence, now) + 1
	c.Set = slices.DeleteFunc(c.Set, func(e bson.E) bool { return e.Key == "state" })
	return c
}

// change returns the fields to write, in the order of their names. If the lock becomes free, the
// fields of its last holder stay.
func (s *state) change() catalog.Change {
	c := catalog.Change{Grants: s.grants}
	limit, mode := int32(0), catalog.Exclusive
	switch {
	case len(s.holders) > 0:
		mode, limit = s.holders[0].Mode, s.holders[0].Limit
	case len(s.waiters) > 0:
		limit = s.waiters[0].Limit
	}
	if len(s.grants) > 0 {
		put(&c, "evidence", s.evidence, s.evidence != "")
		put(&c, "fence", s.fence, true)
		put(&c, "grants", grantLines(s.grants), true)
	}
	put(&c, "limit", limit, limit != 0)
	if s.moved {
		put(&c, "state", int32(min(len(s.holders), 1)), true)
		put(&c, "mode", string(mode), mode != catalog.Exclusive)
		put(&c, "sharers", documents(s.holders, true), mode != catalog.Exclusive)
	}
	if s.moved && len(s.holders) > 0 {
		first := s.holders[0]
		put(&c, "process", first.Process, true)
		put(&c, "takeoverMS", first.Takeover.Milliseconds(), true)
		put(&c, "ts", first.TS, true)
		put(&c, "when", bson.NewDateTimeFromTime(first.Since), true)
		put(&c, "who", first.Who, true)
		put(&c, "why", first.Why, true)
	}
	put(&c, "waiters", documents(s.waiters, false), len(s.waiters) > 0)
	slices.SortFunc(c.Set, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	slices.Sort(c.Unset)
	return c
}

func put(c *catalog.Change, field string, value any, present bool) {
	if present {
		c.Set = append(c.Set, bson.E{Key: field, Value: value})
	} else {
		c.Unset = append(c.Unset, field)
	}
}

// documents returns the array for the field sharers or waiters. An element of sharers has no mode
// and no limit, because these are fields of the lock document.
func documents(list []catalog.Participant, holders bool) bson.A {
	docs := make(bson.A, 0, len(list))
	for _, p := range list {
		docs = append(docs, document(p, holders))
	}
	return docs
}

func document(p catalog.Participant, holder bool) bson.D {
	d := bson.D{
		{Key: "ts", Value: p.TS}, {Key: "process", Value: p.Process},
		{Key: "who", Value: p.Who}, {Key: "why", Value: p.Why},
		{Key: "takeoverMS", Value: p.Takeover.Milliseconds()},
	}
	since := bson.NewDateTimeFromTime(p.Since)
	if holder {
		return append(d, bson.E{Key: "when", Value: since}, bson.E{Key: "fence", Value: p.Fence})
	}
	d = append(d, bson.E{Key: "mode", Value: string(p.Mode)}, bson.E{Key: "since", Value: since})
	if p.Limit > 0 {
		d = append(d, bson.E{Key: "limit", Value: p.Limit})
	}
	return d
}

// Entry returns a waiter as an element of the field waiters.
func Entry(r catalog.Request, since time.Time) bson.D {
	return document(participant(r, since), false)
}

func participant(r catalog.Request, since time.Time) catalog.Participant {
	return catalog.Participant{
		TS: r.TS, Process: r.Process, Who: r.Who, Why: r.Why, Mode: r.Mode, Limit: r.Limit,
		Takeover: r.Takeover, Since: since,
	}
}

func grantLines(grants []catalog.Grant) string {
	var b strings.Builder
	for _, g := range grants {
		b.WriteString(catalog.GrantLine(g.TS, g.Fence, g.Process))
	}
	return b.String()
}
