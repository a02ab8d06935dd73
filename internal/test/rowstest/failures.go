package rowstest

import (
	"strings"
	"time"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// An ending that is done says when, one that failed for good, too, and the failures of a row are
// those that its last ending names. What gives an attempt back leaves them as they are.
func endingsSay(s *suite) {
	s.add(4)
	got := s.take(newClaim("a", 1), 4)
	list := []rows.Failure{{Attempt: 1, At: noon, Process: "p:1", Error: "broken"},
		{Attempt: 2, At: noon, Error: "again"}}
	var ends []rows.Ending
	for i, to := range []rows.State{rows.Done, rows.Dead, rows.Retrying, rows.Retrying} {
		e := end(got[i], to)
		e.At, e.Error, e.Failures = noon.Add(time.Second), "again", list
		if to == rows.Retrying {
			e.NotBefore, e.Uncounted = noon, i == 3
		}
		if to == rows.Done || e.Uncounted {
			e.Error, e.Failures = "", nil
		}
		ends = append(ends, e)
	}
	s.finish(4, ends...)
	for i, m := range s.marks(got) {
		then, failures := noon.Add(time.Second), []rows.Failure(nil)
		if i == 1 || i == 2 {
			failures = list
		}
		if m.DoneAt.Equal(then) != (i == 0) || m.DeadAt.Equal(then) != (i == 1) {
			s.t.Errorf("row %d ended as %+v", i, m)
		}
		assert.Slices(s.t, m.Failures, failures, "the failures are %+v, want %+v")
	}
}

// marks are the marks of rows, by the order of these.
func (s *suite) marks(of []rows.Row) []rows.Mark {
	s.t.Helper()
	by := map[string]rows.Mark{}
	for _, row := range check(s.Current(s.ctx, ids(of)))(s) {
		by[rows.Key(row.ID)] = row.Mark
	}
	var marks []rows.Mark
	for _, row := range of {
		marks = append(marks, by[rows.Key(row.ID)])
	}
	return marks
}

// A rescue notes that an attempt failed, and when a row is dead by it; also of rows that have
// failed before, up to so many. A row that waited has not failed.
func rescuesSay(s *suite) {
	s.add(4)
	many := s.take(newClaim("a", 1), 1)[0]
	e := end(many, rows.Retrying)
	e.NotBefore, e.Error = noon, "broken"
	for i := range rows.MostFailures {
		e.Failures = rows.Failed(e.Failures, rows.Failure{Attempt: int64(i), At: noon, Error: "broken"})
	}
	check(s.Finish(s.ctx, []rows.Ending{e}))(s)
	check(s.Tidy(s.ctx, noon, slot("none"), 1, 10))(s)
	one := s.take(newClaim("a", 1), 1)[0]
	two := s.take(leased(newClaim("a", 1)), 1)[0]
	three := s.take(waiting(newClaim("a", 1)), 1)[0]
	last := s.take(newClaim("b", 1), 1)[0]
	all := []rows.Row{one, two, three, last}
	check(s.Expire(s.ctx, noon, two, 10))(s)
	check(s.Tidy(s.ctx, noon, slot("a"), 2, 10))(s)
	check(s.Tidy(s.ctx, noon.Add(time.Hour), slot("b"), 2, 1))(s)
	for i, m := range s.marks(all) {
		want := 1
		switch rows.Key(all[i].ID) {
		case rows.Key(many.ID):
			want = rows.MostFailures
		case rows.Key(three.ID):
			want = 0
		}
		if len(m.Failures) != want || m.DeadAt.Equal(noon.Add(time.Hour)) != (m.State == rows.Dead) {
			s.t.Errorf("row %d is %+v, want %d failures", i, m, want)
		}
		if want != 1 {
			continue
		}
		if f := m.Failures[0]; f.At.IsZero() || f.Error == "" || strings.Contains(f.Error, "attempt") {
			s.t.Errorf("row %d has failed with %+v", i, f)
		}
	}
	s.want(rows.Counts{Ready: 3, Dead: 1})
}
