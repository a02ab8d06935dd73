package rowstest

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// The depth has the rows by state, no more than were asked for, since when the first one waits, and
// when the first retry is due.
func depth(s *suite) {
	assert.Equal(s.t, check(s.Depth(s.ctx, noon, 10))(s), (rows.Depth{}),
		"of no rows: %+v, want %+v")
	for _, made := range []int{20, 3, 9} {
		doc := bson.D{{Key: "_id", Value: bson.NewObjectIDFromTimestamp(at(made))}}
		assert.Must(s.t, s.Insert(s.ctx, []any{doc}))
	}
	s.add(9)
	got := s.take(newClaim("a", 1), 8)
	var ends []rows.Ending
	for i, row := range got[:6] {
		e := end(row, []rows.State{rows.Dead, rows.Retrying, rows.Done}[i%3])
		e.At, e.NotBefore = noon, at(10-i)
		ends = append(ends, e)
	}
	check(s.Finish(s.ctx, ends))(s)
	want := rows.Counts{Ready: 4, Claimed: 2, Retrying: 2, Dead: 2}
	d := check(s.Depth(s.ctx, noon, 10))(s)
	if d.Counts != want || !d.Retry.Equal(at(6)) {
		s.t.Errorf("%+v, want %+v and a retry at %v", d, want, at(6))
	}
	few := rows.Counts{Ready: 1, Claimed: 1, Retrying: 1, Dead: 1}
	assert.Equal(s.t, check(s.Depth(s.ctx, noon, 1))(s).Counts, few, "of one each: %+v, want %+v")
	since := time.Time{}
	if id, ok := s.candidates(1, nil)[0].ID.ObjectIDOK(); ok {
		since = id.Timestamp()
	}
	if !d.Since.Equal(since) {
		s.t.Errorf("the first row waits since %v, want %v", d.Since, since)
	}
}

// Of rows that are due at a time the first waits since that.
func dueDepth(s *suite, field string) {
	s.addDue(field, 3, 1, -1, 2)
	for minute, want := range []rows.Depth{
		{Counts: rows.Counts{Later: 4}},
		{Counts: rows.Counts{Ready: 1, Later: 3}, Since: at(1)},
		{Counts: rows.Counts{Ready: 2, Later: 2}, Since: at(1)},
		{Counts: rows.Counts{Ready: 3, Later: 1}, Since: at(1)},
	} {
		if got := check(s.Depth(s.ctx, at(minute), 10))(s); got != want {
			s.t.Errorf("minute %d: %+v, want %+v", minute, got, want)
		}
	}
}
