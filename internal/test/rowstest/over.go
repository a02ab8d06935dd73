package rowstest

import (
	"time"

	"mongodlm/internal/rows"
)

// What is removed is of that state, for long enough; with no time it is all of the state.
func purge(s *suite) {
	s.add(6)
	got := s.take(newClaim("a", 1), 5)
	var ends []rows.Ending
	for i, to := range []rows.State{rows.Done, rows.Done, rows.Dead, rows.Dead, rows.Dead} {
		e := end(got[i], to)
		if i < 4 {
			e.At = noon.Add(time.Duration(i%2) * time.Hour)
		}
		ends = append(ends, e)
	}
	check(s.Finish(s.ctx, ends[:4]))(s)
	for _, step := range []struct {
		state  rows.State
		before time.Time
		n      int
		left   rows.Counts
	}{
		{rows.Dead, noon, 0, rows.Counts{Ready: 1, Claimed: 1, Dead: 2, Done: 2}},
		{rows.Dead, noon.Add(time.Minute), 1, rows.Counts{Ready: 1, Claimed: 1, Dead: 1, Done: 2}},
		{rows.Done, noon.Add(time.Minute), 1, rows.Counts{Ready: 1, Claimed: 1, Dead: 1, Done: 1}},
		{rows.Done, time.Time{}, 1, rows.Counts{Ready: 1, Claimed: 1, Dead: 1}},
		{rows.Done, time.Time{}, 0, rows.Counts{Ready: 1, Claimed: 1, Dead: 1}},
	} {
		if n := check(s.Purge(s.ctx, step.state, step.before))(s); n != step.n {
			s.t.Errorf("%d rows that were %s before %v, want %d", n, step.state, step.before, step.n)
		}
		s.want(step.left)
	}
}

// What waits is dead by a cancel, once. What is claimed is marked, and its worker's: until that
// ends it, or somebody else who has it later.
func cancelRows(s *suite) {
	s.add(5)
	got := s.take(newClaim("a", 1), 4)
	retrying := end(got[1], rows.Retrying)
	retrying.NotBefore, retrying.Error = noon, "broken"
	check(s.Finish(s.ctx, []rows.Ending{retrying, end(got[2], rows.Done), end(got[3], rows.Dead)}))(s)
	all := check(s.Current(s.ctx, ids(got)))(s)
	all = append(all, s.candidates(1, nil)[0])
	dead, marked := 0, 0
	for range 2 {
		for _, row := range all {
			left := check(s.Cancel(s.ctx, noon, row.ID))(s)
			if left == "" {
				continue
			}
			now := check(s.Documents(s.ctx, ids([]rows.Row{row})))(s)[0]
			m := now.Mark
			if m.State != left {
				s.t.Errorf("left as %s, not %s", m.State, left)
			}
			if m.State == rows.Claimed && m.Cancelled && m.Slot != "" && !m.Session.IsZero() {
				marked++
				continue
			}
			dead++
			if m.State != rows.Dead || m.Error != rows.Cancelled || !m.DeadAt.Equal(noon) ||
				m.Slot != "" || !m.Session.IsZero() || !m.NotBefore.IsZero() || m.Cancelled ||
				now.Doc.Lookup("keep").Type == 0 {
				s.t.Errorf("cancelled as %+v, %v", m, now.Doc)
			}
		}
	}
	if dead != 2 || marked != 2 {
		s.t.Errorf("%d rows were dead and %d marked, want 2 and one twice", dead, marked)
	}
	s.finish(0, end(got[0], rows.Retrying))
	s.finish(1, end(got[0], rows.Ready))
	again := s.take(newClaim("b", 1), 1)
	if !again[0].Mark.Cancelled {
		s.t.Errorf("claimed again as %+v", again[0].Mark)
	}
	check(s.Finish(s.ctx, []rows.Ending{end(again[0], rows.Dead)}))(s)
	s.want(rows.Counts{Dead: 4, Done: 1})
	if left := check(s.Current(s.ctx, ids(again)))(s); left[0].Mark.Cancelled {
		s.t.Errorf("left as %+v", left[0].Mark)
	}
}

// Dying is what Tidy makes dead, and no more.
func dying(s *suite) {
	s.add(5)
	s.take(newClaim("a", 1), 1)
	old := s.take(newClaim("a", 2), 1)
	s.take(newClaim("a", 3), 1)
	s.take(waiting(newClaim("a", 1)), 1)
	s.take(newClaim("b", 1), 1)
	if ids := check(s.Dying(s.ctx, slot("a"), 9, 2))(s); len(ids) != 0 {
		s.t.Errorf("%d rows are dying at their first attempt of two", len(ids))
	}
	found := check(s.Dying(s.ctx, slot("a"), 3, 1))(s)
	if n := check(s.Tidy(s.ctx, noon, slot("a"), 3, 1))(s); len(found) != 2 || n != 3 {
		s.t.Fatalf("%d rows are dying, %d were rescued, want 2 and 3", len(found), n)
	}
	for _, row := range check(s.Documents(s.ctx, append(found, old[0].ID)))(s) {
		m := row.Mark
		if m.State != rows.Dead || m.Error != rows.GivenUp || row.Doc.Lookup("keep").Type == 0 {
			s.t.Errorf("%+v, %v", row.Mark, row.Doc)
		}
	}
}
