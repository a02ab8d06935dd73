package transition_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// A life applies random transitions and random writes of other programs to a lock document. After
// each step it compares the document with the result of moveUp, a second implementation of the
// queue.
type life struct {
	doc      bson.D
	now      time.Time
	sessions int
	fences   map[int64]bool // the fences of all earlier grants
	highest  int64
	movedUp  bool // the last step was a transition, which advances the queue
}

func TestQueue_AnyLife(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &life{now: noon, fences: map[int64]bool{}}
		start := rapid.SampledFrom([]int64{0, 3, transition.Seeded - 1, transition.Seeded, 1 << 40})
		m.highest = start.Draw(t, "fence")
		m.doc = bson.D{{Key: "_id", Value: "balancer"}, {Key: "state", Value: int32(0)},
			{Key: "fence", Value: m.highest}}
		for range 99 * (rapid.IntRange(0, 15).Draw(t, "long queue") / 15) {
			m.sessions++
			g := request(m.sessions, catalog.Exclusive, 0)
			g.Process = process(rapid.IntRange(-2, 0).Draw(t, "of"))
			m.enters(t, g, catalog.Queue)
		}
		t.Repeat(map[string]func(*rapid.T){
			"":           m.invariants,
			"enter":      m.enter,
			"crowd":      m.enter, // more often than sessions leave
			"again":      m.enterAgain,
			"leave":      m.leave,
			"requeue":    m.leaveAndQueue,
			"grant next": m.grantNext,
			"release":    m.foreignRelease,
			"overtake":   m.foreignOvertake,
			"clock":      m.clock,
		})
	})
}

func (m *life) lock(t *rapid.T) catalog.Lock { t.Helper(); return parse(t, m.doc) }

// fits reports whether p may hold the lock together with the given holders.
func fits(holders []catalog.Participant, p catalog.Participant) bool {
	if len(holders) == 0 {
		return true
	}
	if holders[0].Mode != p.Mode || p.Mode == catalog.Exclusive {
		return false
	}
	return p.Mode == catalog.Shared || len(holders) < int(p.Limit)
}

// moveUp grants the lock to waiters from the front of the queue, until a waiter does not fit.
func moveUp(holders, waiters []catalog.Participant) (granted, rest []catalog.Participant) {
	holders = slices.Clone(holders)
	for len(waiters) > 0 && fits(holders, waiters[0]) {
		holders, granted, waiters = append(holders, waiters[0]), append(granted, waiters[0]), waiters[1:]
	}
	return granted, waiters
}

func names(participants []catalog.Participant) []string {
	out := []string{}
	for _, p := range participants {
		out = append(out, fmt.Sprint(number(p.TS)))
	}
	return out
}

func (m *life) invariants(t *rapid.T) {
	l := m.lock(t)
	holders := l.Holders()
	for i, p := range holders {
		if !fits(holders[:i], p) {
			t.Fatalf("these sessions hold the lock together: %s", short(l))
		}
	}
	seen := map[bson.ObjectID]bool{}
	for _, p := range slices.Concat(holders, l.Waiters) {
		if seen[p.TS] {
			t.Fatalf("session %d occurs twice: %s", number(p.TS), short(l))
		}
		seen[p.TS] = true
	}
	if len(l.Waiters) > catalog.MaxWaiters || l.Fence < m.highest {
		t.Fatalf("%d waiters, fence %d after %d", len(l.Waiters), l.Fence, m.highest)
	}
	if m.movedUp && len(l.Waiters) > 0 && fits(holders, l.Waiters[0]) {
		t.Fatalf("the first waiter was not granted the lock: %s", short(l))
	}
}

// step applies a change and compares the new holders and waiters with the result of moveUp. The
// parameters holders and waiters are the state after the session of the change has entered or left,
// and before any grant.
func (m *life) step(
	t *rapid.T, c catalog.Change, holders, waiters []catalog.Participant, evidence string,
) {
	before := m.lock(t)
	granted, rest := moveUp(holders, waiters)
	m.doc = apply(t, m.doc, c)
	l := m.lock(t)
	t.Logf("%s -> %s", short(before), short(l))
	if want := names(slices.Concat(holders, granted)); !slices.Equal(want, names(l.Holders())) {
		t.Fatalf("holders\nwant %v\ngot  %v", want, names(l.Holders()))
	}
	if want := names(rest); !slices.Equal(want, names(l.Waiters)) {
		t.Fatalf("waiters\nwant %v\ngot  %v", want, names(l.Waiters))
	}
	if len(c.Grants) != len(granted) {
		t.Fatalf("grants\nwant %v\ngot  %+v", names(granted), c.Grants)
	}
	want := before.Grants // a change without a grant keeps the grants and their evidence
	if len(c.Grants) > 0 {
		want = c.Grants
	}
	if !slices.Equal(l.Grants, want) {
		t.Fatalf("recorded grants\nwant %+v\ngot  %+v", want, l.Grants)
	}
	for i, a := range c.Grants {
		p, ok := l.HeldBy(granted[i].TS)
		if a.TS != granted[i].TS || a.Process != granted[i].Process || a.Evidence != evidence || !ok ||
			p.Fence != a.Fence || !p.Since.Equal(m.now) || p.Who != granted[i].Who {
			t.Fatalf("grant %+v for %+v, holder %+v", a, granted[i], p)
		}
		fence := m.highest + 1
		if m.highest < transition.Seeded {
			fence = max(fence, m.now.UnixMilli())
		}
		if a.Fence != fence || m.fences[a.Fence] {
			t.Fatalf("fence %d after %d, want %d", a.Fence, m.highest, fence)
		}
		m.fences[a.Fence], m.highest = true, a.Fence
	}
	for _, p := range before.Holders() { // a remaining holder stays as it is
		if now, ok := l.HeldBy(p.TS); ok && now != p {
			t.Fatalf("holder %+v has become %+v", p, now)
		}
	}
	ofQueue := func(e bson.E) bool { return e.Key == "waiters" || e.Key == "limit" }
	if slices.Equal(names(before.Holders()), names(l.Holders())) &&
		len(slices.DeleteFunc(slices.Clone(c.Set), ofQueue)) > 0 {
		t.Fatalf("the holders stay, but the change is %v", c.Set)
	}
	m.movedUp = true
}

func (m *life) newGrant(t *rapid.T) catalog.Request {
	m.sessions++
	modes := []catalog.Mode{catalog.Exclusive, catalog.Shared, catalog.Permit}
	mode, limit := rapid.SampledFrom(modes).Draw(t, "mode"), int32(0)
	if mode == catalog.Permit {
		limit = rapid.Int32Range(1, 3).Draw(t, "limit")
	}
	g := request(m.sessions, mode, limit)
	if n := rapid.IntRange(-2, 2).Draw(t, "process"); n <= 0 {
		g.Process = process(n)
	}
	return g
}

func (m *life) enter(t *rapid.T) {
	g := m.newGrant(t)
	modes := []catalog.EnterMode{catalog.Queue, catalog.Queue, catalog.Queue, catalog.Try}
	m.enters(t, g, rapid.SampledFrom(modes).Draw(t, "how"))
}

func (m *life) enters(t *rapid.T, r catalog.Request, how catalog.EnterMode) {
	l := m.lock(t)
	c, err := transition.Enter{Request: r, How: how}.Next(l, m.now)
	waiters := append(slices.Clone(l.Waiters), waiter(r))
	granted, rest := moveUp(l.Holders(), waiters)
	in := slices.ContainsFunc(granted, func(p catalog.Participant) bool { return p.TS == r.TS })
	var want error
	switch {
	case (l.Held || len(l.Waiters) > 0) && l.Limit != r.Limit:
		want = catalog.ErrPermitMismatch
	case !in && how != catalog.Queue:
		want = catalog.ErrNotFree
	case !in && len(rest) > catalog.MaxWaiters:
		want = catalog.ErrQueueFull
	}
	if !errors.Is(err, want) || c.Nothing() != (err != nil) {
		t.Fatalf("enter of %s %d (%d) into %s: want %v, got %v", r.Mode, m.sessions, how, short(l),
			want, err)
	}
	var mismatch *catalog.PermitMismatchError
	if errors.As(err, &mismatch) && (mismatch.Recorded != l.Limit || mismatch.Asked != r.Limit) {
		t.Fatalf("enter of limit %d into %s: %v", r.Limit, short(l), err)
	}
	if err == nil {
		m.step(t, c, l.Holders(), waiters, "")
	}
}

func waiter(r catalog.Request) catalog.Participant {
	return catalog.Participant{TS: r.TS, Process: r.Process, Who: r.Who, Mode: r.Mode, Limit: r.Limit}
}

func (m *life) participant(t *rapid.T) catalog.Participant {
	l := m.lock(t)
	all := slices.Concat(l.Holders(), l.Waiters)
	if len(all) == 0 {
		t.Skip("no participants")
	}
	return rapid.SampledFrom(all).Draw(t, "who")
}

func (m *life) enterAgain(t *rapid.T) {
	g := m.newGrant(t)
	g.TS = m.participant(t).TS
	how := catalog.EnterMode(rapid.IntRange(0, 2).Draw(t, "how"))
	c, err := transition.Enter{Request: g, How: how}.Next(m.lock(t), m.now)
	if err != nil || !c.Nothing() || len(c.Grants) > 0 {
		t.Fatalf("entered twice: %+v, %v", c, err)
	}
}

func (m *life) leave(t *rapid.T) {
	p := m.participant(t)
	evidence := rapid.SampledFrom([]string{"", "silent"}).Draw(t, "evidence")
	l := m.lock(t)
	c, err := leaving(l, p.TS, m.now, evidence)
	if err != nil {
		t.Fatalf("leave: %v", err)
	}
	m.step(t, c, without(l.Holders(), p.TS), without(l.Waiters, p.TS), evidence)
	if _, err := leaving(m.lock(t), p.TS, m.now, ""); !errors.Is(err, catalog.ErrNoMatch) {
		t.Fatalf("left twice: %v", err)
	}
}

func without(list []catalog.Participant, ts bson.ObjectID) []catalog.Participant {
	gone := func(p catalog.Participant) bool { return p.TS == ts }
	return slices.DeleteFunc(slices.Clone(list), gone)
}

// leaveAndQueue applies a Leave with a request to queue. The request is queued if the lock was
// granted to a waiter, and no permits are in use.
func (m *life) leaveAndQueue(t *rapid.T) {
	l, p, next := m.lock(t), m.participant(t), m.newGrant(t)
	leave := transition.Leave{Session: catalog.Session{Name: l.Name, TS: p.TS}, Enqueue: &next}
	c, err := leave.Next(l, m.now)
	if err != nil {
		t.Fatalf("leave: %v", err)
	}
	holders, waiters := without(l.Holders(), p.TS), without(l.Waiters, p.TS)
	granted, rest := moveUp(holders, waiters)
	queues := next.Mode == catalog.Exclusive && l.Limit == 0 && len(rest) < transition.MaxEnqueued
	if len(granted) > 0 && queues {
		waiters = append(waiters, waiter(next))
	}
	m.step(t, c, holders, waiters, "")
}

func (m *life) grantNext(t *rapid.T) {
	l := m.lock(t)
	c, err := transition.GrantNext{Name: l.Name}.Next(l, m.now)
	if granted, _ := moveUp(l.Holders(), l.Waiters); len(granted) == 0 {
		if !errors.Is(err, catalog.ErrNoMatch) {
			t.Fatalf("grant next of %s: %v", short(l), err)
		}
		return
	}
	if err != nil {
		t.Fatalf("grant next of %s: %v", short(l), err)
	}
	m.step(t, c, l.Holders(), l.Waiters, "")
}

func (m *life) foreignRelease(t *rapid.T) {
	if !m.lock(t).Held {
		t.Skip("no holder")
	}
	m.doc, m.movedUp = put(m.doc, "state", int32(0)), false
}

// foreignOvertake takes the lock over as MongoDB's own lock manager does: it writes only the fields
// that MongoDB knows.
func (m *life) foreignOvertake(t *rapid.T) {
	m.sessions++
	m.doc = put(m.doc, "state", int32(2))
	m.doc = put(m.doc, "ts", session(m.sessions))
	m.doc = put(m.doc, "process", "ConfigServer")
	m.doc = put(m.doc, "when", bson.DateTime(7))
	m.movedUp = false
}

func (m *life) clock(t *rapid.T) {
	ms := rapid.Int64Range(-5000, 20_000).Draw(t, "ms")
	m.now = m.now.Add(time.Duration(ms) * time.Millisecond)
}
