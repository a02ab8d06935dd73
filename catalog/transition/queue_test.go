package transition_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/test/assert"
)

type step func(f failer, l catalog.Lock) (catalog.Change, bool, error)

func enter(text string, how catalog.EnterMode) step {
	return func(f failer, l catalog.Lock) (catalog.Change, bool, error) {
		return entering(l, entrant(f, text), how, noon)
	}
}

func leave(n int) step {
	return func(_ failer, l catalog.Lock) (catalog.Change, bool, error) {
		c, err := leaving(l, session(n), noon, "")
		return c, err == nil, err
	}
}

func grantNext(_ failer, l catalog.Lock) (catalog.Change, bool, error) {
	c, err := granting(l, noon)
	return c, err == nil, err
}

func TestTransitions(t *testing.T) {
	t.Parallel()
	const wait, try = catalog.Queue, catalog.Try
	for _, c := range []struct {
		name, before string
		step         step
		after        string // empty if the lock is unchanged
		grants       string
		err          error
	}{
		{"Free_Holds", "|", enter("x1", wait), "x1 |", "1", nil},
		{"Free_ReaderHolds", "|", enter("s1", wait), "s1 |", "1", nil},
		{"Free_PermitHolds", "|", enter("p1/2", wait), "p1/2 |", "1", nil},
		{"Held_Waits", "x1 |", enter("x2", wait), "x1 | x2", "", nil},
		{"Held_WaitsAtTheEnd", "x1 | x2", enter("s3", wait), "x1 | x2 s3", "", nil},
		{"Foreign_Waits", "f1 |", enter("x2", wait), "x1 | x2", "", nil},
		{"Foreign_ReaderWaits", "f1 |", enter("s2", wait), "x1 | s2", "", nil},
		{"Reader_BesideReader_Holds", "s1 |", enter("s2", wait), "s1 s2 |", "2", nil},
		{"Reader_BehindWriter_Waits", "s1 | x2", enter("s3", wait), "s1 | x2 s3", "", nil},
		{"Writer_BesideReader_Waits", "s1 |", enter("x2", wait), "s1 | x2", "", nil},
		{"Permit_Room_Holds", "p1/2 |", enter("p2/2", wait), "p1/2 p2/2 |", "2", nil},
		{"Permit_NoRoom_Waits", "p1/2 p2/2 |", enter("p3/2", wait), "p1/2 p2/2 | p3/2", "", nil},
		{"Permit_OtherLimit", "p1/2 |", enter("p2/3", wait), "", "", catalog.ErrPermitMismatch},
		{"Permit_BesideReader", "s1 |", enter("p2/3", wait), "", "", catalog.ErrPermitMismatch},
		{"Permit_BesideHolder", "x1 |", enter("p2/3", wait), "", "", catalog.ErrPermitMismatch},
		{"Holder_BesidePermit", "p1/2 |", enter("x2", wait), "", "", catalog.ErrPermitMismatch},
		{"Reader_BesidePermit", "p1/2 |", enter("s2", wait), "", "", catalog.ErrPermitMismatch},
		{"Permit_FreeQueue_OtherLimit", "| p1/2", enter("p2/3", wait), "", "", catalog.ErrPermitMismatch},
		{"Permit_FreeQueue", "| p1/2", enter("p2/2", wait), "p1/2 p2/2 |", "1 2", nil},
		{"FreeQueue_FirstHolds", "| x1", enter("x2", wait), "x1 | x2", "1", nil},
		{"FreeQueue_ReadersHold", "| s1 s2 x3", enter("s4", wait), "s1 s2 | x3 s4", "1 2", nil},
		{"Holder_Again", "x1 | x2", enter("x1", wait), "", "", nil},
		{"Waiter_Again", "x1 | x2", enter("x2", try), "", "", nil},
		{"Sharer_Again", "s1 s2 | x3", enter("p2/7", try), "", "", nil},
		{"WaiterOfAFreeLock_Again", "| x1 x2", enter("x2", wait), "", "", nil},

		{"Try_Free_Holds", "|", enter("x1", try), "x1 |", "1", nil},
		{"Try_Held", "x1 |", enter("x2", try), "", "", catalog.ErrNotFree},
		{"Try_FreeQueue", "| x1", enter("x2", try), "", "", catalog.ErrNotFree},
		{"Try_FreeQueueOfReaders_Holds", "| s1", enter("s2", try), "s1 s2 |", "1 2", nil},
		{"Try_Reader_Holds", "s1 |", enter("s2", try), "s1 s2 |", "2", nil},
		{"Try_ReaderBehindWriter", "s1 | x2", enter("s3", try), "", "", catalog.ErrNotFree},
		{"Try_LastPermit_Holds", "p1/2 |", enter("p2/2", try), "p1/2 p2/2 |", "2", nil},
		{"Try_NoPermit", "p1/1 |", enter("p2/1", try), "", "", catalog.ErrNotFree},

		{"Leave_Alone_Frees", "x1 |", leave(1), "|", "", nil},
		{"Leave_Foreign_Grants", "f1 | x2", leave(1), "x2 |", "2", nil},
		{"Leave_NextHolds", "x1 | x2 x3", leave(1), "x2 | x3", "2", nil},
		{"Leave_RunOfReaders", "x1 | s2 s3 x4 s5", leave(1), "s2 s3 | x4 s5", "2 3", nil},
		{"Leave_RunOfPermits", "p1/2 p2/2 | p3/2 p4/2", leave(2), "p1/2 p3/2 | p4/2", "3", nil},
		{"Leave_Waiter", "x1 | x2 x3 x4", leave(3), "x1 | x2 x4", "", nil},
		{"Leave_LastWaiter", "x1 | x2", leave(2), "x1 |", "", nil},
		{"Leave_FirstReader", "s1 s2 |", leave(1), "s2 |", "", nil},
		{"Leave_ReaderOfSome", "s1 s2 | x3", leave(2), "s1 | x3", "", nil},
		{"Leave_LastReader", "s1 | x2 s3", leave(1), "x2 | s3", "2", nil},
		{"Leave_WaitingWriter", "s1 | x2 s3 s4", leave(2), "s1 s3 s4 |", "3 4", nil},
		{"Leave_SecondWriter", "s1 | x2 x3 s4", leave(3), "s1 | x2 s4", "", nil},
		{"Leave_WaiterOfAFreeLock", "| x1 x2", leave(1), "x2 |", "2", nil},
		{"Leave_OnlyWaiterOfAFreeLock", "| x1", leave(1), "|", "", nil},
		{"Leave_Unknown", "x1 | x2", leave(3), "", "", catalog.ErrNoMatch},
		{"Leave_Free", "|", leave(1), "", "", catalog.ErrNoMatch},

		{"GrantNext_FreeQueue", "| x1 x2", grantNext, "x1 | x2", "1", nil},
		{"GrantNext_FreeReaders", "| s1 s2 x3", grantNext, "s1 s2 | x3", "1 2", nil},
		{"GrantNext_FreePermits", "| p1/2 p2/2 p3/2", grantNext, "p1/2 p2/2 | p3/2", "1 2", nil},
		{"GrantNext_Held", "x1 | x2", grantNext, "", "", catalog.ErrNoMatch},
		{"GrantNext_Full", "p1/1 | p2/1", grantNext, "", "", catalog.ErrNoMatch},
		{"GrantNext_Readers", "s1 | x2", grantNext, "", "", catalog.ErrNoMatch},
		{"GrantNext_Free", "|", grantNext, "", "", catalog.ErrNoMatch},
		{"GrantNext_HeldWithRoom", "p1/3 | p2/3 p3/3 p4/3", grantNext, "", "", catalog.ErrNoMatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			doc := document(t, c.before)
			change, changed, err := c.step(t, parse(t, doc))
			if !errors.Is(err, c.err) || changed != (c.after != "") {
				t.Fatalf("error\nwant %v\ngot  %v, changed %v", c.err, err, changed)
			}
			if !changed {
				if !reflect.DeepEqual(change, catalog.Change{}) {
					t.Errorf("no change, but %+v", change)
				}
				return
			}
			l := parse(t, apply(t, doc, change))
			if got := short(l); strings.TrimSpace(got) != c.after {
				t.Errorf("lock\nwant %s\ngot  %s", c.after, got)
			}
			var granted []string
			for i, a := range change.Grants {
				granted = append(granted, fmt.Sprint(number(a.TS)))
				if a.Name != "balancer" || a.Process != process(number(a.TS)) ||
					a.Fence != parse(t, doc).Fence+int64(i)+1 {
					t.Errorf("grant %+v", a)
				}
			}
			assert.Equal(t, strings.Join(granted, " "), c.grants, "grants\nwant %[2]s\ngot  %[1]s")
			if len(change.Grants) > 0 && !slices.Equal(l.Grants, change.Grants) {
				t.Errorf("grants\nwant %+v\ngot  %+v", change.Grants, l.Grants)
			}
		})
	}
}

func TestEnter_NoDocument_HoldsWithAFenceOfTheClock(t *testing.T) {
	t.Parallel()
	g := entrant(t, "x1")
	c, changed, err := entering(catalog.Lock{Name: "balancer"}, g, catalog.Queue, noon)
	if err != nil || !changed {
		t.Fatalf("changed %v: %v", changed, err)
	}
	want := bson.D{
		{Key: "fence", Value: noon.UnixMilli()},
		{Key: "grants", Value: catalog.GrantLine(g.TS, noon.UnixMilli(), g.Process)},
		{Key: "process", Value: g.Process}, {Key: "state", Value: int32(1)},
		{Key: "takeoverMS", Value: int64(60_000)}, {Key: "ts", Value: g.TS},
		{Key: "when", Value: bson.NewDateTimeFromTime(noon)},
		{Key: "who", Value: g.Who}, {Key: "why", Value: g.Why},
	}
	if !reflect.DeepEqual(c.Set, want) {
		t.Errorf("set\nwant %v\ngot  %v", want, c.Set)
	}
	gone := []string{"evidence", "limit", "mode", "sharers", "waiters"}
	if !slices.Equal(c.Unset, gone) {
		t.Errorf("unset\nwant %q\ngot  %q", gone, c.Unset)
	}
}

func TestEnter_Fence_RisesAndIsRaisedToTheClock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		before, want int64
	}{
		{"None", 0, noon.UnixMilli()},
		{"CountedUp", 7, noon.UnixMilli()},
		{"LargestThatIsRaised", transition.Seeded - 1, noon.UnixMilli()},
		{"SmallestThatIsNot", transition.Seeded, transition.Seeded + 1},
		{"OfAnEarlierClock", noon.UnixMilli() - 1000, noon.UnixMilli() - 999},
		{"OfALaterClock", noon.UnixMilli() + 1000, noon.UnixMilli() + 1001},
		{"Highest", transition.Highest, transition.Highest + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := parse(t, put(document(t, "|"), "fence", c.before))
			change, _, err := entering(l, entrant(t, "x1"), catalog.Queue, noon)
			if got := value(change.Set, "fence"); err != nil || got != c.want {
				t.Errorf("fence: want %d, got %v, %v", c.want, got, err)
			}
		})
	}
}

func TestFence_ClockBeforeIt_StillRises(t *testing.T) {
	t.Parallel()
	l := parse(t, put(document(t, "|"), "fence", int64(500)))
	c, _, err := entering(l, entrant(t, "x1"), catalog.Queue, time.UnixMilli(100))
	if got := value(c.Set, "fence"); err != nil || got != int64(501) {
		t.Errorf("fence: want 501, got %v, %v", got, err)
	}
}

func TestFence_TooLarge_NoGrant(t *testing.T) { // F8
	t.Parallel()
	doc := put(document(t, "x1 | x2"), "fence", int64(transition.Highest)+1)
	c, err := leaving(parse(t, doc), session(1), noon, "")
	if err != nil || len(c.Grants) > 0 {
		t.Errorf("leave: %+v, %v", c, err)
	}
	raw := assert.Value(bson.Marshal(apply(t, doc, c)))(t)
	if l, bad := catalog.ParseLock(raw); bad == nil || bad.Field != "fence" {
		t.Errorf("free with a fence that cannot be raised, and not malformed: %+v", l)
	}
}

// In each mode the queue has MaxWaiters places. A full queue refuses a new session, but not a
// session that is already queued.
func TestEnter_FullQueue_RefusesWhoWouldWait(t *testing.T) {
	t.Parallel()
	for mode, kind := range map[string]struct{ holder, suffix string }{
		"exclusive": {"x1", ""}, "shared": {"x1", ""}, "permit": {"p1/1", "/1"},
	} {
		letter := map[string]string{"exclusive": "x", "shared": "s", "permit": "p"}[mode]
		of := func(n int) catalog.Request {
			return entrant(t, fmt.Sprint(letter, n, kind.suffix))
		}
		doc := document(t, kind.holder+" |")
		enters := func(n int, how catalog.EnterMode, want error) {
			t.Helper()
			l := parse(t, doc)
			c, changed, err := entering(l, of(n), how, noon)
			if changed != (want == nil) || !errors.Is(err, want) {
				t.Fatalf("%s with %d waiters, how %d: want %v, got %v", mode, len(l.Waiters), how, want, err)
			}
			if room := l.RoomFor(of(n)); how == catalog.Queue && room != (want == nil) {
				t.Errorf("%s with %d waiters: room %v", mode, len(l.Waiters), room)
			}
			if changed {
				doc = apply(t, doc, c)
			}
		}
		for i := range catalog.MaxWaiters {
			enters(10+i, catalog.Queue, nil)
		}
		enters(2, catalog.Queue, catalog.ErrQueueFull)
		enters(2, catalog.Try, catalog.ErrNotFree)
		_, changed, err := entering(parse(t, doc), of(10), catalog.Queue, noon)
		if changed || err != nil {
			t.Errorf("%s: a waiter again: changed %v, %v", mode, changed, err)
		}
	}
}

// If a lock is free and its queue is full, a new request is still queued, because the first waiter
// becomes the holder.
func TestEnter_FreeWithAFullQueue_Queues(t *testing.T) {
	t.Parallel()
	var waiters strings.Builder
	for i := range catalog.MaxWaiters {
		waiters.WriteString(fmt.Sprint(" x", i+10))
	}
	doc := document(t, "|"+waiters.String())
	c, _, err := entering(parse(t, doc), entrant(t, "x2"), catalog.Queue, noon)
	assert.Must(t, err)
	if l := parse(t, apply(t, doc, c)); len(l.Waiters) != catalog.MaxWaiters || !l.Held {
		t.Error(short(l))
	}
}

func TestEnter_OtherLimit_ErrorHasTheFacts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, enter   string
		recorded, asked int32
	}{
		{"p1/2 |", "p2/3", 2, 3}, {"p1/2 |", "x2", 2, 0}, {"p1/2 |", "s2", 2, 0},
		{"x1 |", "p2/3", 0, 3}, {"s1 |", "p2/3", 0, 3}, {"f1 |", "p2/3", 0, 3},
		{"| p1/2", "p2/3", 2, 3}, {"| x1", "p2/3", 0, 3},
	} {
		_, _, err := entering(parse(t, document(t, c.before)), entrant(t, c.enter),
			catalog.Queue, noon)
		var got *catalog.PermitMismatchError
		want := catalog.PermitMismatchError{Name: "balancer", Recorded: c.recorded, Asked: c.asked}
		if !errors.As(err, &got) || *got != want {
			t.Errorf("%s beside %s\nwant %+v\ngot  %v", c.enter, c.before, want, err)
		}
	}
}

func TestForeignHolder_KeepsItsFieldsUntilItLeaves(t *testing.T) {
	t.Parallel()
	doc := document(t, "f1 |")
	c, _, err := entering(parse(t, doc), entrant(t, "s2"), catalog.Queue, noon)
	assert.Must(t, err)
	if len(c.Set) != 1 || c.Set[0].Key != "waiters" {
		t.Errorf("want the waiters alone, got %v", c.Set)
	}
	doc = apply(t, doc, c)
	if c, err = leaving(parse(t, doc), session(1), noon, "silent"); err != nil {
		t.Fatal(err)
	}
	doc = apply(t, doc, c)
	l := parse(t, doc)
	if short(l) != "s2 |" || l.State != 1 || l.Fence != planted+1 ||
		l.Grants[0].Evidence != "silent" || value(doc, "evidence") != "silent" {
		t.Errorf("%s: %+v", short(l), l)
	}
}

func TestStaleSharers_CountForNothing(t *testing.T) {
	t.Parallel()
	stale := put(put(put(document(t, "s1 s2 | x3 s4"), "ts", session(9)), "state", int32(2)),
		"process", process(9))
	l := parse(t, stale)
	assert.MustEqual(t, short(l), "x9 | x3 s4", "lock: %s, want %s")
	for _, n := range []int{1, 2} {
		assert.Is(t, assert.Err(leaving(l, session(n), noon, "")), catalog.ErrNoMatch)
	}
	for step, want := range map[string]string{
		"x9": "x3 | s4", "x3": "x9 | s4", "s5": "x9 | x3 s4 s5", "s1": "x9 | x3 s4 s1",
	} {
		var c catalog.Change
		var err error
		if step[0] == 'x' {
			c, err = leaving(l, entrant(t, step).TS, noon, "")
		} else {
			c, _, err = entering(l, entrant(t, step), catalog.Queue, noon)
		}
		assert.Must(t, err)
		doc := apply(t, stale, c)
		if got := short(parse(t, doc)); got != want {
			t.Errorf("%s\nwant %s\ngot  %s", step, want, got)
		}
		if step == "x9" && (value(doc, "sharers") != nil || value(doc, "mode") != nil) {
			t.Errorf("the stale sharers are still there: %v", doc)
		}
	}
}

func TestEvidence_IsThatOfTheLastGrant(t *testing.T) {
	t.Parallel()
	doc := document(t, "x1 | s2 s3 x4 x5")
	c, err := leaving(parse(t, doc), session(1), noon, "silent for 15m")
	if err != nil || len(c.Grants) != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, a := range c.Grants {
		if a.Evidence != "silent for 15m" {
			t.Errorf("grant %+v", a)
		}
	}
	doc = apply(t, doc, c)
	for _, n := range []int{5, 2} { // a change without a grant keeps the evidence
		if c, err = leaving(parse(t, doc), session(n), noon, "another"); err != nil {
			t.Fatal(err)
		}
		if doc = apply(t, doc, c); value(doc, "evidence") != "silent for 15m" {
			t.Errorf("evidence: %v", value(doc, "evidence"))
		}
	}
	if c, err = leaving(parse(t, doc), session(3), noon, ""); err != nil {
		t.Fatal(err)
	}
	if doc = apply(t, doc, c); value(doc, "evidence") != nil || c.Grants[0].Evidence != "" {
		t.Errorf("evidence: %v", value(doc, "evidence"))
	}
}

func TestEntry_IsWhatEnterWrites(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"x2", "s2", "p2/3"} {
		g := entrant(t, text)
		before := map[byte]string{'x': "x1 |", 's': "x1 |", 'p': "p1/3 p8/3 p9/3 |"}[text[0]]
		c, _, err := entering(parse(t, document(t, before)), g, catalog.Queue, noon)
		assert.Must(t, err)
		got, want := value(c.Set, "waiters"), bson.A{transition.Entry(g, noon)}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nwant %v\ngot  %v", text, want, got)
		}
	}
}
