// Package rowstest is the conformance suite of [rows.Store].
package rowstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// Run tests a store whose queues have neither due times nor chains. Each case opens an empty store.
func Run(t *testing.T, open func(t *testing.T, o rows.Options) rows.Store) {
	for name, test := range map[string]func(*suite){
		"Claim_ReadyRowsByAge":             claimRows,
		"End_NamesSessionAndBatch":         endNames,
		"End_EveryState":                   endStates,
		"Claimed_RowsOfOneSlot":            claimedRows,
		"Wake_DueRetries":                  wake,
		"Cancel_RowsThatAreNotOver":        cancelRows,
		"InsertUnique_OnceForEachKey":      unique,
		"Purge_ByStateAndAge":              purge,
		"Count_StatesAndAges":              count,
		"Watch_ReadyAndTaken":              stream,
		"Paused_WithoutASwitch_IsNotPause": unpaused,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&suite{t, t.Context(), open(t, rows.Options{})})
		})
	}
}

// RunDue tests a store with due times. Each case opens an empty store.
func RunDue(t *testing.T, open func(t *testing.T, o rows.Options) rows.Store) {
	for _, field := range []string{"execute_at", "plan.at"} {
		t.Run("Due_Rows_"+field, func(t *testing.T) {
			t.Parallel()
			due(&suite{t, t.Context(), open(t, rows.Options{Due: field})}, field)
		})
	}
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func at(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }

type suite struct {
	t   *testing.T
	ctx context.Context
	rows.Store
}

func check[T any](v T, err error) func(*suite) T {
	return func(s *suite) T {
		s.t.Helper()
		assert.Must(s.t, err)
		return v
	}
}

func (s *suite) add(n int) {
	s.t.Helper()
	docs := make([]any, n)
	for i := range docs {
		keep := bson.D{{Key: "me", Value: "as I am"}}
		docs[i] = bson.D{{Key: "_id", Value: int32(i)}, {Key: "keep", Value: keep}}
	}
	assert.Must(s.t, s.Insert(s.ctx, docs))
}

func newClaim(slot string, fence int64) rows.Claim {
	return rows.Claim{Locks: "locks", Slot: rows.SlotPrefix + slot, SlotFence: fence,
		Session: bson.NewObjectID(), Batch: bson.NewObjectID(), At: noon}
}

func slot(name string) rows.Slot { return rows.Slot{Locks: "locks", Name: rows.SlotPrefix + name} }

// one claims a row in a new batch. It returns nil if no row is ready.
func (s *suite) one(c rows.Claim, ask rows.Ask) *rows.Row {
	s.t.Helper()
	c.Batch = bson.NewObjectID()
	return check(s.Claim(s.ctx, c, ask))(s)
}

func (s *suite) take(c rows.Claim, n int) (got []rows.Row) {
	s.t.Helper()
	for range n {
		row := s.one(c, rows.Ask{})
		if row == nil {
			s.t.Fatalf("%d rows were claimed, want %d", len(got), n)
		}
		got = append(got, *row)
	}
	return got
}

// end calls End and checks the number of endings that matched a claim.
func (s *suite) end(want int, ends ...rows.Ending) {
	s.t.Helper()
	assert.MustEqual(s.t, check(s.End(s.ctx, ends...))(s), want, "%d claims were ended, want %d")
}

func (s *suite) now(row rows.Row) rows.Row {
	s.t.Helper()
	found := check(s.Read(s.ctx, row.ID))(s)
	if found == nil {
		s.t.Fatalf("row %v is gone", row.ID)
	}
	return *found
}

func (s *suite) want(want rows.Counts) {
	s.t.Helper()
	assert.Equal(s.t, check(s.Count(s.ctx, 0))(s).Counts, want, "%+v, want %+v")
}

func number(id bson.RawValue) int64 { n, _ := id.AsInt64OK(); return n }

// A claim returns the oldest ready row once, counts an attempt, raises the fence, and keeps the
// rest of the document.
func claimRows(s *suite) {
	s.add(3)
	c := newClaim("a", 7)
	for want := range 3 {
		row := s.one(c, rows.Ask{})
		m := row.Mark
		if number(row.ID) != int64(want) || m.State != rows.Claimed || m.Fence != 1 || m.Attempts != 1 ||
			m.Slot != c.Slot || m.SlotFence != 7 || m.Session != c.Session ||
			row.Doc.Lookup("keep").Type == 0 {
			s.t.Errorf("claimed %v as %+v", row.Doc, m)
		}
	}
	if row := s.one(c, rows.Ask{}); row != nil {
		s.t.Errorf("claimed %v although no row is ready", row)
	}
	s.end(1, check(s.Claimed(s.ctx, slot("a")))(s)[1].End(rows.Ready))
	id := check(s.First(s.ctx, rows.Ask{}))(s)
	if none := s.one(c, rows.Ask{Without: []bson.RawValue{id}}); none != nil {
		s.t.Errorf("claimed %v, which is left out", none)
	}
	if row := s.one(c, rows.Ask{}); row == nil || row.Mark.Fence != 2 ||
		row.Mark.Attempts != 2 {
		s.t.Errorf("claimed again: %+v", row)
	}
}

// An ending changes a row only if it names the session and the batch of the claim.
func endNames(s *suite) {
	s.add(1)
	row := s.take(newClaim("a", 1), 1)[0]
	other := row.End(rows.Done)
	other.Batch = bson.NewObjectID()
	s.end(0, other)
	other = row.End(rows.Done)
	other.Session = bson.NewObjectID()
	s.end(0, other)
	s.want(rows.Counts{Claimed: 1})
	s.end(1, row.End(rows.Done))
	s.end(0, row.End(rows.Ready))
	s.want(rows.Counts{Done: 1})
}

// One call of End ends several claims in different states, and stores the attempts, times and
// errors of each.
func endStates(s *suite) {
	s.add(5)
	got := s.take(newClaim("a", 1), 5)
	list := []rows.Failure{{Attempt: 1, At: noon, Process: "p:1", Error: "broken"},
		{Attempt: 2, At: noon, Error: "again"}}
	ends := []rows.Ending{got[0].End(rows.Done), got[1].End(rows.Dead), got[2].End(rows.Retrying),
		got[3].Uncounted(rows.Retrying), got[4].Uncounted(rows.Ready)}
	for i := range ends {
		ends[i].At, ends[i].NotBefore = at(1), at(2)
	}
	for i := 1; i <= 2; i++ {
		ends[i].Error, ends[i].Failures = "again", list
	}
	s.end(5, ends...)
	s.want(rows.Counts{Ready: 1, Retrying: 2, Dead: 1, Done: 1})
	for i, row := range got {
		m := s.now(row).Mark
		failed := i == 1 || i == 2
		attempts := int64(1)
		if i > 2 {
			attempts = 0
		}
		if m.Attempts != attempts || m.DoneAt.Equal(at(1)) != (i == 0) ||
			m.DeadAt.Equal(at(1)) != (i == 1) || m.NotBefore.Equal(at(2)) != (i == 2 || i == 3) ||
			(m.Error == "again") != failed || slices.Equal(m.Failures, list) != failed ||
			m.Slot != "" || !m.Session.IsZero() || m.Fence != 1 || m.Batch != row.Mark.Batch {
			s.t.Errorf("row %d ended as %+v", i, m)
		}
	}
}

// Claimed returns only the rows of the given slot. Slots with the same name but different lock
// databases are different slots. A row without the database belongs to both.
func claimedRows(s *suite) {
	s.add(5)
	s.take(newClaim("a", 1), 2)
	s.take(newClaim("b", 1), 1)
	c := newClaim("a", 1)
	c.Locks = "other"
	s.take(c, 1)
	c.Locks = "" // unknown
	s.take(c, 1)
	for one, want := range map[rows.Slot]int{slot("a"): 3, slot("b"): 1, slot("c"): 0,
		{Locks: "other", Name: c.Slot}: 2} {
		assert.Equal(s.t, len(check(s.Claimed(s.ctx, one))(s)), want, "%d rows of a slot, want %d")
	}
	assert.Equal(s.t, len(check(s.Slots(s.ctx))(s)), 4, "%d slots, want %d")
}

// A retrying row becomes ready after its pause and keeps its error.
func wake(s *suite) {
	s.add(3)
	for i, row := range s.take(newClaim("a", 1), 3) {
		e := row.End(rows.Retrying)
		e.NotBefore, e.Error = at(i), "broken"
		s.end(1, e)
	}
	assert.Equal(s.t, check(s.Wake(s.ctx, at(1)))(s), 2, "%d rows are ready again, want %d")
	s.want(rows.Counts{Ready: 2, Retrying: 1})
	row := s.take(newClaim("a", 1), 1)[0]
	if m := row.Mark; m.Error != "broken" || m.Attempts != 2 || !m.NotBefore.IsZero() {
		s.t.Errorf("claimed again as %+v", m)
	}
}

// Cancel makes a ready or retrying row dead. A claimed row stays claimed, but after Cancel it can
// neither retry nor become ready.
func cancelRows(s *suite) {
	s.add(4)
	got := s.take(newClaim("a", 1), 3)
	retrying := got[1].End(rows.Retrying)
	retrying.NotBefore = noon
	s.end(1, retrying)
	s.end(1, got[2].End(rows.Done))
	ready := check(s.First(s.ctx, rows.Ask{}))(s)
	for id, want := range map[int64]rows.State{0: rows.Claimed, 1: rows.Dead, 2: "",
		number(ready): rows.Dead, 99: ""} {
		left := check(s.Cancel(s.ctx, noon, value(int32(id))))(s)
		assert.Equal(s.t, left, want, "left as %q, want %q")
	}
	if m := s.now(got[1]).Mark; m.Error != rows.Cancelled || !m.DeadAt.Equal(noon) {
		s.t.Errorf("cancelled as %+v", m)
	}
	s.end(0, got[0].End(rows.Retrying))
	s.end(0, got[0].Uncounted(rows.Ready))
	s.end(1, got[0].End(rows.Dead))
	if m := s.now(got[0]).Mark; m.Cancelled || m.State != rows.Dead {
		s.t.Errorf("left as %+v", m)
	}
}

// Of several inserts with the same unique key, exactly one inserts its document. Once that row is
// done, another insert with the key still does nothing.
func unique(s *suite) {
	const callers, keys = 6, 3
	s.add(3)
	var id, inserted atomic.Int64
	id.Store(100)
	insert := func(key string) {
		doc := bson.D{{Key: "_id", Value: id.Add(1)}, {Key: "key", Value: key}}
		ok, err := s.InsertUnique(s.ctx, key, doc)
		assert.NoErr(s.t, err)
		if ok {
			inserted.Add(1)
		}
	}
	var calls sync.WaitGroup
	for range callers {
		for k := range keys {
			calls.Go(func() { insert(fmt.Sprint("key ", k)) })
		}
	}
	calls.Wait()
	s.want(rows.Counts{Ready: 3 + keys})
	assert.Equal(s.t, inserted.Load(), keys, "%d rows were inserted, want %d")
	for _, row := range s.take(newClaim("a", 1), 3+keys) {
		s.end(1, row.End(rows.Done))
	}
	insert("key 1")
	s.want(rows.Counts{Done: 3 + keys})
}

// Purge removes only rows of the given state and age.
func purge(s *suite) {
	s.add(6)
	for i, row := range s.take(newClaim("a", 1), 5) {
		e := row.End([]rows.State{rows.Done, rows.Done, rows.Dead, rows.Dead, rows.Claimed}[i])
		if e.At = at(60 * (i % 2)); i < 4 {
			s.end(1, e)
		}
	}
	for _, step := range []struct {
		state  rows.State
		before time.Time
		n      int
		left   rows.Counts
	}{
		{rows.Dead, noon, 0, rows.Counts{Ready: 1, Claimed: 1, Dead: 2, Done: 2}},
		{rows.Dead, at(1), 1, rows.Counts{Ready: 1, Claimed: 1, Dead: 1, Done: 2}},
		{rows.Done, at(1), 1, rows.Counts{Ready: 1, Claimed: 1, Dead: 1, Done: 1}},
		{rows.Done, time.Time{}, 1, rows.Counts{Ready: 1, Claimed: 1, Dead: 1}},
		{rows.Done, time.Time{}, 0, rows.Counts{Ready: 1, Claimed: 1, Dead: 1}},
	} {
		n := check(s.Purge(s.ctx, step.state, step.before))(s)
		assert.Equal(s.t, n, step.n, "%d rows were removed, want %d")
		s.want(step.left)
	}
}

// Count with a limit does not count done rows, and returns the time of the first retry.
func count(s *suite) {
	s.add(6)
	for i, row := range s.take(newClaim("a", 1), 4) {
		e := row.End([]rows.State{rows.Dead, rows.Retrying, rows.Retrying, rows.Done}[i])
		e.NotBefore = at(10 - i)
		s.end(1, e)
	}
	s.take(newClaim("a", 1), 1)
	d := check(s.Count(s.ctx, 10))(s)
	if want := (rows.Counts{Ready: 1, Claimed: 1, Retrying: 2, Dead: 1}); d.Counts != want ||
		!d.Retry.Equal(at(8)) {
		s.t.Errorf("%+v, want %+v and a retry at %v", d, want, at(8))
	}
	few := rows.Counts{Ready: 1, Claimed: 1, Retrying: 1, Dead: 1}
	assert.Equal(s.t, check(s.Count(s.ctx, 1))(s).Counts, few, "at most one each: %+v, want %+v")
}

// A queue without a pause switch is not paused.
func unpaused(s *suite) {
	if check(s.Paused(s.ctx, "claim:db.rows:queue"))(s) {
		s.t.Error("the queue is paused")
	}
}

// A row is claimed only when it is due, and the row that is due first is claimed first. A row
// without a date is never claimed.
func due(s *suite, field string) {
	for i, n := range []int{3, 1, -1, 2} {
		var value any
		if n >= 0 {
			value = at(n)
		}
		doc := bson.D{{Key: "_id", Value: int32(i)}, {Key: field, Value: value}}
		if field == "plan.at" {
			doc[1] = bson.E{Key: "plan", Value: bson.D{{Key: "at", Value: value}}}
		}
		assert.Must(s.t, s.Insert(s.ctx, []any{doc}))
	}
	before, after := check(s.Now(s.ctx))(s), check(s.Now(s.ctx))(s)
	if before.IsZero() || after.Before(before) || after.Sub(before) > time.Minute {
		s.t.Errorf("the clock is %v, then %v", before, after)
	}
	var later []int64
	for _, one := range check(s.Later(s.ctx, at(2), 9))(s) {
		later = append(later, number(one.ID))
	}
	assert.Slices(s.t, later, []int64{3, 0}, "later rows are %v, want %v")
	c := newClaim("a", 1)
	for minute, want := range []int64{-1, 1, 3, 0, -1} {
		row := s.one(c, rows.Ask{Due: at(minute)})
		if (row == nil) != (want < 0) || row != nil && number(row.ID) != want {
			s.t.Errorf("minute %d: %v, want row %d", minute, row, want)
		}
		if row != nil {
			e := row.End(rows.Retrying)
			e.NotBefore = at(20)
			s.end(1, e)
		}
	}
	check(s.Wake(s.ctx, at(20)))(s)
	if row := s.one(c, rows.Ask{Due: at(20)}); row == nil || number(row.ID) != 1 {
		s.t.Errorf("a retry is %v, want the row that was due first", row)
	}
}

// A Stream receives the events of a store.
type Stream struct {
	t      *testing.T
	events chan rows.Event
	ended  chan error
}

// Listen opens the stream of a store. It skips the test if the store has no stream.
func Listen(t *testing.T, store rows.Store) *Stream {
	t.Helper()
	s := &Stream{t, make(chan rows.Event, 1000), make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ended <- store.Watch(ctx, func(e rows.Event) {
			e.ID = bson.RawValue{Type: e.ID.Type, Value: slices.Clone(e.ID.Value)}
			s.events <- e
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	s.next("opened")
	return s
}

func (s *Stream) next(after string) rows.Event {
	s.t.Helper()
	select {
	case got := <-s.events:
		return got
	case err := <-s.ended:
		if errors.Is(err, rows.ErrNoStream) {
			s.t.Skip(err)
		}
		s.t.Fatal(err)
	case <-time.After(time.Minute):
		s.t.Fatalf("%s: no event", after)
	}
	return rows.Event{}
}

// Want waits for the next event and compares it with the arguments. The first argument names the
// preceding operation in messages.
func (s *Stream) Want(after string, kind rows.EventKind, id int64, due time.Time) {
	s.t.Helper()
	got := s.next(after)
	if got.Kind != kind || number(got.ID) != id || !got.Due.Equal(due) {
		s.t.Errorf("%s: %v, want %s of row %d", after, got, kind, id)
	}
}

// The stream reports exactly the rows that become ready or are claimed.
func stream(s *suite) {
	events := Listen(s.t, s)
	want := func(after string, kind rows.EventKind, id int64) {
		s.t.Helper()
		events.Want(after, kind, id, time.Time{})
	}
	s.add(2)
	want("insert", rows.Arrived, 0)
	want("insert", rows.Arrived, 1)
	row := s.take(newClaim("a", 1), 1)[0]
	want("claim", rows.Taken, 0)
	s.end(1, row.Uncounted(rows.Ready))
	want("give back", rows.Arrived, 0)
	row = s.take(newClaim("a", 1), 1)[0]
	want("claim again", rows.Taken, 0)
	e := row.End(rows.Retrying)
	e.NotBefore = noon
	s.end(1, e)
	check(s.Wake(s.ctx, noon))(s)
	want("retry", rows.Arrived, 0)
	row = s.take(newClaim("a", 1), 1)[0]
	want("claim a third time", rows.Taken, 0)
	s.end(1, row.End(rows.Done))
	s.take(newClaim("a", 1), 1)
	want("the other row", rows.Taken, 1)
}
