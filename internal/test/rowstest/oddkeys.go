package rowstest

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// It tries to break: keys that a server cannot be asked for by value, an undefined one, a regular
// expression and a document that looks like an operator, end the work on all rows. Rows of theirs
// wait for the one that holds it, and the others,
// also those that the expression matches, go on.
func oddKeys(s *suite, _ bool) {
	odd, one, more := bson.Undefined{}, bson.Regex{Pattern: "x"}, bson.D{{Key: "$gt", Value: 1}}
	s.chain(odd, one, more, odd, one, more, "x", bson.Null{})
	first := s.take(newClaim("a", 1), 3)
	s.wantRows("first", first, 0, 1, 2)
	keys := []bson.RawValue{value(odd), value(one), value(more), value(bson.Null{})}
	for what, ask := range map[string]*rows.Ask{"behind": {Behind: keys}, "held": {Held: keys}} {
		found, _, err := s.Candidates(s.ctx, 10, 0, ask)
		assert.Must(s.t, err)
		s.wantRows(what, found, 6)
	}
	if n := check(s.Settle(s.ctx, keys))(s); n > 0 {
		s.t.Errorf("%d keys were taken from rows at work", n)
	}
	ends := []rows.Ending{end(first[0], rows.Done), end(first[1], rows.Dead), end(first[2], rows.Done)}
	if _, err := s.Finish(s.ctx, ends); err != nil {
		s.t.Fatal(err)
	}
	s.wantRows("when they are over", s.take(newClaim("a", 1), 10), 3, 4, 5, 6, 7)
}
