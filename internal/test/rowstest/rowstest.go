// Package rowstest is the suite that every store of rows passes.
package rowstest

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// Run runs the suite. open returns an empty store.
func Run(t *testing.T, open func(t *testing.T) rows.Store) {
	for name, test := range map[string]func(*suite){
		"MarkOne_ReadyRowsOnly":            markOne,
		"Cancel_WhatIsNotOver":             cancelRows,
		"InsertUnique_OnceForEachKey":      unique,
		"Dying_WhatTidyMakesDead":          dying,
		"Mark_TwoClaims_EachRowOnce":       mark,
		"Finish_NamesSessionAndBatch":      finishNames,
		"Finish_EveryState_OneCommand":     finishStates,
		"Tidy_DueRows":                     tidyDue,
		"Tidy_EarlierHoldersOfTheSlotOnly": tidySlot,
		"Expire_RowsThatWereNotRenewed":    expire,
		"GiveBack_BatchesOfASession":       giveBack,
		"Rescue_RowsThatWaited_Uncounted":  waited,
		"Candidates_ByAge":                 byAge,
		"Finish_SaysWhenAndWhy":            endingsSay,
		"Rescue_SaysWhenAndWhy":            rescuesSay,
		"Watch_ReadyAndTaken":              stream,
		"Purge_ByStateAndAge":              purge,
		"Depth_AsItIs":                     depth,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&suite{t, t.Context(), open(t)})
		})
	}
}

// noon is some time.
var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

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
	return rows.Claim{Locks: "locks", Slot: slot, SlotFence: fence, Session: bson.NewObjectID(),
		Batch: bson.NewObjectID()}
}

// leased is a claim with a lease of a minute, waiting one that may wait for its worker.
func leased(c rows.Claim) rows.Claim { c.Lease = time.Minute; return c }

func waiting(c rows.Claim) rows.Claim { c.Waiting = true; return c }

func slot(name string) rows.Slot { return rows.Slot{Locks: "locks", Name: name} }

// candidates are up to n of the rows that are asked for.
func (s *suite) candidates(n int, ask *rows.Ask) []rows.Row {
	s.t.Helper()
	found, bad, err := s.Candidates(s.ctx, n, 0, ask)
	if err != nil || len(bad) > 0 {
		s.t.Fatal(bad, err)
	}
	return found
}

// one claims a row that is asked for; nil: there is none.
func (s *suite) one(ask *rows.Ask) *rows.Row {
	s.t.Helper()
	return check(s.MarkOne(s.ctx, newClaim("a", 1), ask))(s)
}

// finish ends claims, so many of which still are.
func (s *suite) finish(want int, ends ...rows.Ending) {
	s.t.Helper()
	assert.MustEqual(s.t, check(s.Finish(s.ctx, ends))(s), want, "%d claims were ended, want %d")
}

// tidy tidies a slot at noon, and so many rows with it.
func (s *suite) tidy(name string, fence, most int64, want int) {
	s.t.Helper()
	n := check(s.Tidy(s.ctx, noon, slot(name), fence, most))(s)
	assert.Equal(s.t, n, want, "%d rows were tidied, want %d")
}

// take claims up to n rows as package claim does.
func (s *suite) take(c rows.Claim, n int) []rows.Row {
	s.t.Helper()
	return s.mark(c, s.candidates(n, nil))
}

func (s *suite) mark(c rows.Claim, found []rows.Row) []rows.Row {
	s.t.Helper()
	if len(found) == 0 {
		return nil
	}
	ids := ids(found)
	assert.Must(s.t, s.Mark(s.ctx, ids, c))
	return check(s.Marked(s.ctx, ids, c))(s)
}

func ids(of []rows.Row) (ids []bson.RawValue) {
	for _, row := range of {
		ids = append(ids, row.ID)
	}
	return ids
}

func (s *suite) want(want rows.Counts) {
	s.t.Helper()
	assert.Equal(s.t, check(s.Count(s.ctx))(s), want, "rows are %+v, want %+v")
}

func end(row rows.Row, to rows.State) rows.Ending {
	return rows.Ending{ID: row.ID, Session: row.Mark.Session, Batch: row.Mark.Batch, To: to}
}

// A row is claimed once, with what the claim says, and nothing else of its document changes.
func markOne(s *suite) {
	s.add(2)
	c := newClaim("a", 7)
	for range 2 {
		row := check(s.MarkOne(s.ctx, c, nil))(s)
		if row == nil {
			s.t.Fatal("no row was claimed")
		}
		m := row.Mark
		if m.State != rows.Claimed || m.Slot != "a" || m.SlotFence != 7 || m.Session != c.Session ||
			m.Batch != c.Batch || m.Fence != 1 || m.Attempts != 1 {
			s.t.Errorf("claimed as %+v", m)
		}
		if got := row.Doc.Lookup("keep", "me").StringValue(); got != "as I am" {
			s.t.Errorf("the document became %v", row.Doc)
		}
	}
	if row := check(s.MarkOne(s.ctx, c, nil))(s); row != nil {
		s.t.Errorf("claimed twice: %+v", row)
	}
	s.want(rows.Counts{Claimed: 2})
}

// Two claims that have read the same candidates get each row once.
func mark(s *suite) {
	s.add(6)
	found := s.candidates(4, nil)
	one, two := s.mark(newClaim("a", 1), found[:3]), s.mark(newClaim("b", 1), found)
	if len(one) != 3 || len(two) != 1 {
		s.t.Errorf("%d and %d rows, want 3 and 1", len(one), len(two))
	}
	if found, _, _ := s.Candidates(s.ctx, 4, 1, nil); len(found) != 1 {
		s.t.Errorf("%d candidates after the first of two, want 1", len(found))
	}
	if got := s.take(newClaim("a", 1), 10); len(got) != 2 {
		s.t.Errorf("%d rows were left, want 2", len(got))
	}
}

// What ends a claim matches nothing when session or batch is another one.
func finishNames(s *suite) {
	s.add(1)
	row := s.take(newClaim("a", 1), 1)[0]
	for _, change := range []func(*rows.Ending){
		func(e *rows.Ending) { e.Session = bson.NewObjectID() },
		func(e *rows.Ending) { e.Batch = bson.NewObjectID() },
	} {
		for _, to := range []rows.State{rows.Done, rows.Ready, rows.Dead, rows.Retrying} {
			e := end(row, to)
			change(&e)
			if n := check(s.Finish(s.ctx, []rows.Ending{e}))(s); n != 0 {
				s.t.Errorf("%s: %d rows", to, n)
			}
			if n := check(s.Finish(s.ctx, []rows.Ending{e, e}))(s); n != 0 {
				s.t.Errorf("%s: %d rows", to, n)
			}
		}
	}
	e := end(row, rows.Done)
	e.Delete = true
	assert.Equal(s.t, check(s.FinishIn(s.ctx, e))(s), 1, "%d rows, want %d")
	assert.Equal(s.t, check(s.FinishIn(s.ctx, e))(s), 0, "%d rows the second time, want %d")
	s.want(rows.Counts{})
}

// Claims of several batches end in all ways at once.
func finishStates(s *suite) {
	s.add(8)
	one, two := s.take(newClaim("a", 1), 4), s.take(newClaim("a", 1), 4)
	var ends []rows.Ending
	for i, to := range []rows.State{rows.Done, rows.Ready, rows.Dead, rows.Retrying} {
		for _, row := range []rows.Row{one[i], two[i]} {
			e := end(row, to)
			if to == rows.Dead || to == rows.Retrying {
				e.Error = "broken"
			}
			e.NotBefore = time.Time{}
			if to == rows.Retrying {
				e.NotBefore = noon.Add(time.Hour)
			}
			ends = append(ends, e)
		}
	}
	s.finish(8, ends...)
	s.want(rows.Counts{Ready: 2, Retrying: 2, Dead: 2, Done: 2})
	for _, row := range check(s.Current(s.ctx, ids(append(one, two...))))(s) {
		m := row.Mark
		wantError, wantAttempts := "", int64(1)
		switch m.State {
		case rows.Dead, rows.Retrying:
			wantError = "broken"
		case rows.Ready:
			wantAttempts = 0
		}
		if m.Error != wantError || m.Attempts != wantAttempts || m.Fence != 1 || m.Slot != "" ||
			!m.Session.IsZero() || m.NotBefore.IsZero() == (m.State == rows.Retrying) {
			s.t.Errorf("ended as %+v", m)
		}
	}
}

// Rows that are due become ready, and others do not.
func tidyDue(s *suite) {
	s.add(2)
	now := noon
	var ends []rows.Ending
	for i, row := range s.take(newClaim("a", 1), 2) {
		e := end(row, rows.Retrying)
		e.NotBefore, e.Error = now.Add(time.Duration(i)*time.Minute), "broken"
		ends = append(ends, e)
	}
	s.finish(2, ends...)
	s.tidy("a", 1, 10, 1)
	row := s.one(nil)
	if row == nil || row.Mark.Fence != 2 || row.Mark.Attempts != 2 || row.Mark.Error != "broken" ||
		!row.Mark.NotBefore.IsZero() {
		s.t.Errorf("claimed again as %+v", row)
	}
	s.want(rows.Counts{Claimed: 1, Retrying: 1})
}

// Only rows of earlier holders of this slot become ready, and dead when it was their last attempt.
func tidySlot(s *suite) {
	s.add(4)
	s.take(newClaim("a", 1), 1)
	s.take(newClaim("a", 2), 1)
	s.take(newClaim("b", 1), 2)
	assert.Equal(s.t, check(s.Tidy(s.ctx, noon, rows.Slot{Locks: "others", Name: "a"}, 9, 10))(s), 0,
		"%d rows of a slot in another database, want %d")
	for i, n := range []int{0, 1, 1, 0} {
		if got := check(s.Tidy(s.ctx, noon, slot("a"), int64(i+1), 10))(s); got != n {
			s.t.Errorf("fence %d: %d rows, want %d", i+1, got, n)
		}
	}
	s.want(rows.Counts{Ready: 2, Claimed: 2})
	s.tidy("b", 2, 1, 2)
	s.want(rows.Counts{Ready: 2, Dead: 2})
}

// A lease that was renewed since it was read is not ended; one that was not is, whatever there is.
func expire(s *suite) {
	s.add(3)
	s.take(leased(newClaim("a", 1)), 2)
	s.take(newClaim("a", 1), 1)
	seen := check(s.Leased(s.ctx))(s)
	if len(seen) != 2 || seen[0].Mark.Lease != time.Minute {
		s.t.Fatalf("leased rows: %+v, want two of a minute", seen)
	}
	assert.Equal(s.t, check(s.Renew(s.ctx, seen[0]))(s), 1, "%d rows were renewed, want %d")
	for i, want := range []int{0, 1} {
		assert.Equal(s.t, check(s.Expire(s.ctx, noon, seen[i], 10))(s), want,
			"%d rows expired, want %d")
	}
	assert.Equal(s.t, check(s.Renew(s.ctx, seen[1]))(s), 0,
		"%d rows were renewed that had expired, want %d")
	s.want(rows.Counts{Ready: 1, Claimed: 2})
	again := check(s.Leased(s.ctx))(s)
	if len(again) != 1 || again[0].Mark.Beat != 1 {
		s.t.Fatalf("leased rows: %+v, want one that was renewed once", again)
	}
	assert.Equal(s.t, check(s.Expire(s.ctx, noon, again[0], 1))(s), 1, "%d rows expired, want %d")
	s.want(rows.Counts{Ready: 1, Claimed: 1, Dead: 1})
}

// Rows that were given back, that are due again, or that were rescued come before those that were
// added after them: new ones for ever do not keep them from their turn.
func byAge(s *suite) {
	s.add(3)
	got := s.take(newClaim("a", 1), 2)
	s.take(newClaim("b", 1), 1)
	late := end(got[1], rows.Retrying)
	late.NotBefore, late.Uncounted = noon, true
	s.finish(2, end(got[0], rows.Ready), late)
	if n := check(s.Tidy(s.ctx, noon, slot("b"), 2, 10))(s); n < 2 {
		s.t.Fatalf("%d rows, want 2", n)
	}
	assert.Must(s.t, s.Insert(s.ctx, []any{bson.D{{Key: "_id", Value: int32(9)}}}))
	found := s.candidates(4, nil)
	assert.MustEqual(s.t, len(found), 4, "%d rows, want %d")
	if last := found[3]; last.ID.AsInt64() != 9 {
		s.t.Errorf("the last one is %v, want the one that came last", last.ID)
	}
	for _, row := range found[:2] {
		if row.Mark.Attempts != 0 {
			s.t.Errorf("row %v was given back with %d attempts", row.ID, row.Mark.Attempts)
		}
	}
}

// A row that waited for a worker when its process died, or its lease ended, gets its attempt back
// and does not die, nor does one that was renewed; of one that was rescued before and is renewed it
// counts. Each is marked as rescued.
func waited(s *suite) {
	s.add(6)
	got := s.take(waiting(leased(newClaim("a", 1))), 4)
	s.take(waiting(newClaim("b", 1)), 2)
	if !got[0].Mark.Waiting || got[0].Mark.Attempts != 1 || got[0].Mark.Rescued {
		s.t.Errorf("claimed as %+v", got[0].Mark)
	}
	for i, row := range got[:3] {
		row.Mark.Rescued = i < 2
		assert.Equal(s.t, check(s.Renew(s.ctx, row))(s), 1, "%d rows were renewed, want %d")
	}
	for _, row := range check(s.Current(s.ctx, ids(append(got[:1:1], got[3]))))(s) {
		assert.Equal(s.t, check(s.Expire(s.ctx, noon, row, 1))(s), 1, "%d rows expired, want %d")
	}
	s.tidy("a", 2, 1, 2)
	for i, row := range check(s.Current(s.ctx, ids(got)))(s) {
		want, attempts := rows.Ready, int64(0)
		if id := row.ID.AsInt64(); id < 2 {
			want, attempts = rows.Dead, 1
		}
		if m := row.Mark; m.State != want || m.Attempts != attempts || !m.Rescued || m.Waiting {
			s.t.Errorf("row %d is %+v, want it %s", i, m, want)
		}
	}
	s.want(rows.Counts{Ready: 2, Claimed: 2, Dead: 2})
	again := s.take(newClaim("a", 3), 1)
	if m := again[0].Mark; m.Waiting || !m.Rescued || m.Attempts != 1 {
		s.t.Errorf("claimed again as %+v", m)
	}
}

// What a session has claimed is found by batch, and given back by batch.
func giveBack(s *suite) {
	s.add(6)
	a, b, other := newClaim("a", 1), newClaim("a", 1), newClaim("b", 1)
	b.Session = a.Session
	s.take(a, 2)
	s.take(b, 2)
	s.take(other, 1)
	if got := check(s.Batches(s.ctx, slot("a"), a.Session))(s); len(got) != 2 {
		s.t.Errorf("batches %v, want two", got)
	}
	if got := check(s.Slots(s.ctx))(s); len(got) != 2 {
		s.t.Errorf("slots %v, want two", got)
	}
	if n := check(s.GiveBack(s.ctx, a.Session, []bson.ObjectID{b.Batch, other.Batch}))(s); n != 2 {
		s.t.Errorf("%d rows, want 2", n)
	}
	s.want(rows.Counts{Ready: 3, Claimed: 3})
	assert.Equal(s.t, check(s.GiveBack(s.ctx, a.Session, nil))(s), 2, "%d rows, want %d")
	s.want(rows.Counts{Ready: 5, Claimed: 1})
	if odd := check(s.Odd(s.ctx))(s); len(odd) > 0 {
		s.t.Errorf("odd rows: %v", odd)
	}
}
