package rowstest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// RunDue runs the suite of stores that give rows when they are due. open returns an empty store
// that knows it from this field.
func RunDue(t *testing.T, open func(t *testing.T, field string) rows.Store) {
	for name, test := range map[string]func(*suite, string){
		"Now_IsAClock":                dueNow,
		"MarkOne_DueRowsOnly_InOrder": dueOne,
		"Candidates_DueRowsOnly":      dueBatch,
		"Tidy_DueRowsComeFirst":       dueAgain,
		"Later_InOrder":               dueLater,
		"Watch_TellsWhenRowsAreDue":   dueStream,
		"Depth_OfDueRows":             dueDepth,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, field := range []string{"execute_at", "plan.at"} {
				test(&suite{t, t.Context(), open(t, field)}, field)
			}
		})
	}
}

// addDue adds rows that are due at these times after noon, in minutes; without a date at minus one.
func (s *suite) addDue(field string, minutes ...int) {
	s.t.Helper()
	for i, n := range minutes {
		doc := bson.D{{Key: "_id", Value: int32(i)}}
		outer, inner, deep := strings.Cut(field, ".")
		var due any
		switch {
		case n >= 0 && deep:
			due = bson.D{{Key: inner, Value: at(n)}}
		case n >= 0:
			due = at(n)
		}
		doc = append(doc, bson.E{Key: outer, Value: due})
		assert.Must(s.t, s.Insert(s.ctx, []any{doc}))
	}
}

func at(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }

func dueAt(minute int) *rows.Ask { return &rows.Ask{Due: at(minute)} }

// The store's clock goes on.
func dueNow(s *suite, _ string) {
	before, after := check(s.Now(s.ctx))(s), check(s.Now(s.ctx))(s)
	if before.IsZero() || after.Before(before) || after.Sub(before) > time.Minute {
		s.t.Errorf("the clock said %v, then %v", before, after)
	}
}

// Single rows come one after the other as they become due, and those without a date never.
func dueOne(s *suite, field string) {
	s.addDue(field, 3, 1, -1, 2)
	now := check(s.Now(s.ctx))(s)
	if now.After(at(9)) { // no test's clock is before it, but the one in virtual time
		s.want(rows.Counts{Ready: 3, Later: 1})
	} else {
		s.want(rows.Counts{Later: 4})
	}
	for minute, want := range []int32{-1, 1, 3, 0, -1} {
		row := s.one(dueAt(minute))
		if (row == nil) != (want < 0) || row != nil && row.ID.Int32() != want {
			s.t.Errorf("minute %d: %v, want row %d", minute, row, want)
		}
	}
	if row := s.one(nil); row != nil {
		s.t.Errorf("%v was given without a time", row)
	}
}

// Candidates are due, in order, and those left out are left out.
func dueBatch(s *suite, field string) {
	s.addDue(field, 4, 3, -1, 2, 1, 0)
	ask := dueAt(3)
	ask.Without = []bson.RawValue{{Type: bson.TypeInt32, Value: []byte{4, 0, 0, 0}}}
	found, bad, err := s.Candidates(s.ctx, 9, 1, ask)
	if err != nil || bad != nil || len(found) != 2 || found[0].ID.Int32() != 3 ||
		found[1].ID.Int32() != 1 {
		s.t.Errorf("%v, %v, %v, want rows 3 and 1", found, bad, err)
	}
}

// A row that was tried before is overdue: it is given first, and after a rescue, too.
func dueAgain(s *suite, field string) {
	s.addDue(field, 2, 0, 1)
	for range 2 {
		c := newClaim("a", 1)
		for _, want := range []int32{1, 2} {
			if row := check(s.MarkOne(s.ctx, c, dueAt(5)))(s); row == nil || row.ID.Int32() != want {
				s.t.Fatalf("got %v, want row %d", row, want)
			}
		}
		s.tidy("a", 2, 9, 2)
	}
}

// What is due later is read in order, from a time on.
func dueLater(s *suite, field string) {
	s.addDue(field, 4, 3, -1, 2, 1, 0)
	s.one(dueAt(0))
	for _, c := range []struct {
		after, n int
		want     []int
	}{{0, 9, []int{1, 2, 3, 4}}, {1, 2, []int{2, 3}}, {4, 9, nil}} {
		var got []int
		for _, one := range check(s.Later(s.ctx, at(c.after), c.n))(s) {
			minute := int(one.Due.Sub(noon) / time.Minute)
			if got = append(got, minute); map[int]int32{1: 4, 2: 3, 3: 1, 4: 0}[minute] != one.ID.Int32() {
				s.t.Errorf("row %v is due at minute %d", one.ID, minute)
			}
		}
		if !slices.Equal(got, c.want) {
			s.t.Errorf("after minute %d come %v, want %v", c.after, got, c.want)
		}
	}
}

// The stream tells when a row that is added is due, and nothing of one without a date. What is
// ready again comes without.
func dueStream(s *suite, field string) {
	told := Listen(s.t, s)
	s.addDue(field, 2, -1, 1)
	told.WantDue("insert", at(2), "0")
	told.WantDue("insert", at(1), "2")
	row := s.one(dueAt(5))
	told.Want("claim", "taken", "2")
	s.finish(1, end(*row, rows.Ready))
	told.WantDue("give back", time.Time{}, "2")
}
