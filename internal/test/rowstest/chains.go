package rowstest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// RunChains runs the suite of a store that lets one row of a key be worked on at a time. open
// returns an empty one, whose keys are in this field.
func RunChains(t *testing.T, open func(t *testing.T, key string, letGo bool) rows.Store) {
	for name, test := range map[string]func(s *suite, letGo bool){
		"Chains_OneRowOfAKey":              oneOfAKey,
		"Chains_KeysOfEveryKind":           kinds,
		"Chains_KeysThatAreNoValues":       oddKeys,
		"Chains_HoldUntilDoneOrDead":       holdUntil,
		"Chains_RescuedRowsHold":           rescuedHold,
		"Chains_OfTheseKeysOnlyTheHolder":  behind,
		"Chains_TheStreamTellsOfFreedKeys": freed,
	} {
		for _, letGo := range []bool{false, true} {
			t.Run(map[bool]string{true: name + "_LetGo", false: name}[letGo], func(t *testing.T) {
				t.Parallel()
				test(&suite{t, t.Context(), open(t, "of.key", letGo)}, letGo)
			})
		}
	}
}

// chain adds rows with these keys, none for one that is nil.
func (s *suite) chain(keys ...any) {
	s.t.Helper()
	var docs []any
	for i, key := range keys {
		doc := bson.D{{Key: "_id", Value: int32(i)}}
		if key != nil {
			doc = append(doc, bson.E{Key: "of", Value: bson.D{{Key: "key", Value: key}}})
		}
		docs = append(docs, doc)
	}
	assert.Must(s.t, s.Insert(s.ctx, docs))
}

func value(v any) bson.RawValue {
	kind, data, err := bson.MarshalValue(v)
	if err != nil {
		panic(err)
	}
	return bson.RawValue{Type: kind, Value: data}
}

func (s *suite) wantRows(what string, got []rows.Row, want ...int64) {
	s.t.Helper()
	numbers := make([]int64, len(got))
	for i, row := range got {
		numbers[i] = row.ID.AsInt64()
	}
	if slices.Sort(numbers); !slices.Equal(numbers, want) {
		s.t.Errorf("%s: rows %v, want %v", what, numbers, want)
	}
}

// held are the keys that are held: of these, if there are any.
func (s *suite) held(of ...bson.RawValue) []bson.RawValue {
	s.t.Helper()
	keys, all, err := s.Held(s.ctx, of)
	if err != nil || !all {
		s.t.Fatal(all, err)
	}
	return keys
}

// wantBehind claims one row in vain, since another one holds its key.
func (s *suite) wantBehind(what string, ask *rows.Ask, key any) {
	s.t.Helper()
	row, err := s.MarkOne(s.ctx, newClaim("b", 1), ask)
	var held *rows.HeldError
	if !errors.As(err, &held) || row != nil {
		s.t.Errorf("%s: %+v, %v, want that the key is held", what, row, err)
	} else if !held.Key.IsZero() && rows.KeyText(held.Key) != rows.KeyText(value(key)) {
		s.t.Errorf("%s: the key %v is held, want %v", what, held.Key, key)
	}
}

// Of the rows of one key one is claimed, alone and in batches, the first of them, and those of
// other keys are not hindered.
func oneOfAKey(s *suite, _ bool) {
	s.chain("x", "x", "y", "x", "z", "y")
	one := s.one(nil)
	if one == nil || one.ID.AsInt64() != 0 || one.Mark.Holds != "of.key" {
		s.t.Fatalf("claimed %+v, want the first row, which holds its key", one)
	}
	s.wantBehind("the second row of the key", nil, "x")
	held := s.held()
	if len(held) != 1 || rows.KeyText(held[0]) != rows.KeyText(value("x")) {
		s.t.Errorf("held keys %v, want x", held)
	}
	of := s.held(value("y"), value("x"), value(bson.Null{}))
	if len(of) != 1 || of[0].StringValue() != "x" {
		s.t.Errorf("of x, y and null %v are held, want x", of)
	}
	found := s.candidates(10, &rows.Ask{Held: held})
	s.wantRows("without the held key", found, 2, 4, 5)
	for i, key := range []string{"y", "z", "y"} {
		if got, ok := rows.KeyOf(found[i].Doc, "of.key"); !ok || got.StringValue() != key {
			s.t.Errorf("candidate %d has the key %v, want %v", i, got, key)
		}
	}
	all := s.candidates(10, nil)
	s.wantRows("all at once", s.mark(newClaim("a", 1), all), 2, 4)
}

// Numbers are the same whatever their type is, null is a key, what is absent is none, and rows with
// a list are never given.
func kinds(s *suite, _ bool) {
	null := bson.Null{}
	s.chain(int32(1), int64(1), 1.0, null, null, nil, nil, bson.A{int32(1), "x"}, bson.A{}, "1")
	all := s.candidates(20, nil)
	s.wantRows("candidates", all, 0, 1, 2, 3, 4, 5, 6, 9)
	odd := check(s.Odd(s.ctx))(s)
	if len(odd) != 2 || odd[0].ID.AsInt64() != 7 || odd[1].ID.AsInt64() != 8 ||
		!strings.Contains(odd[0].Error(), `"of.key" is a list`) {
		s.t.Errorf("odd rows: %v", odd)
	}
	got := s.mark(newClaim("a", 1), all)
	s.wantRows("claimed", got, 0, 3, 5, 6, 9)
	s.wantBehind("number", &rows.Ask{Held: []bson.RawValue{value(null)}}, int32(1))
	s.wantBehind("null", &rows.Ask{Held: []bson.RawValue{value(int32(1))}}, null)
	held := append(s.held(), value(null))
	if row := s.one(&rows.Ask{Held: held}); row != nil {
		s.t.Errorf("claimed %v", row.ID)
	}
	for _, row := range got {
		s.finish(1, end(row, rows.Done))
	}
	s.wantRows("when they are done", s.take(newClaim("a", 1), 20), 1, 4)
}

// A row holds its key from its first claim until it is done or dead, also when it is given back or
// retries: then only if it shall.
func holdUntil(s *suite, letGo bool) {
	s.chain("x", "x", "x", "x", "x")
	first := func() rows.Row {
		s.t.Helper()
		row := s.one(nil)
		if row == nil {
			s.t.Fatal("no row")
		}
		return *row
	}
	s.finish(1, end(first(), rows.Ready))
	later := check(s.Current(s.ctx, []bson.RawValue{value(int32(2))}))(s)
	if got := s.mark(newClaim("b", 1), later); len(got) != 0 {
		s.t.Error("a later row was claimed although the one before was only given back")
	}
	if held := s.held(); len(held) != 0 {
		s.t.Errorf("%v is held, and its row is ready", held)
	}
	e := end(first(), rows.Retrying)
	e.NotBefore = noon
	s.finish(1, e)
	if letGo {
		s.finish(1, end(first(), rows.Done)) // the second one
		check(s.Tidy(s.ctx, noon, slot("c"), 1, 10))(s)
	} else {
		s.wantBehind("a retry", nil, "x")
		check(s.Tidy(s.ctx, noon, slot("c"), 1, 10))(s)
		if got := s.mark(newClaim("b", 1), later); len(got) != 0 {
			s.t.Error("a later row was claimed although the one before is to be retried")
		}
	}
	again := first()
	if again.ID.AsInt64() != 0 {
		s.t.Errorf("row %v was claimed, want the first one again", again.ID)
	}
	s.finish(1, end(again, rows.Dead))
	for range map[bool]int{false: 3, true: 2}[letGo] {
		s.finish(1, end(first(), rows.Done))
	}
	last := end(first(), rows.Done)
	last.Delete = true
	s.finish(1, last)
	for _, row := range check(s.Current(s.ctx, ids(append(later, again))))(s) {
		if row.Mark.Holds != "" {
			s.t.Errorf("row %v is %s and holds its key", row.ID, row.Mark.State)
		}
	}
	if held := s.held(); len(held) != 0 {
		s.t.Errorf("%v is held", held)
	}
}

// Rows that were rescued, whose lease ended or whose batch was given back hold their keys, and not
// when they died of it.
func rescuedHold(s *suite, _ bool) {
	s.chain("x", "x", "y", "y", "z", "z")
	c := newClaim("a", 1)
	all := s.candidates(10, nil)
	later := []rows.Row{all[1], all[3], all[5]}
	rest := func(what string, want ...int64) {
		s.t.Helper()
		s.wantRows(what, s.mark(newClaim("b", 1), later), want...)
	}
	again := func() []rows.Row {
		s.t.Helper()
		got := s.mark(c, []rows.Row{all[0], all[2], all[4]})
		s.wantRows("the first ones", got, 0, 2, 4)
		return got
	}
	again()
	check(s.GiveBack(s.ctx, c.Session, nil))(s)
	rest("given back")
	again()
	check(s.Tidy(s.ctx, noon, slot("a"), 2, 10))(s)
	rest("rescued")
	c.Lease = 1000
	got := again()
	check(s.Expire(s.ctx, noon, got[0], 10))(s)
	check(s.Expire(s.ctx, noon, got[1], 1))(s)
	rest("lease over", 3)
	check(s.Tidy(s.ctx, noon, slot("a"), 2, 1))(s)
	rest("dead", 5)
}

// Of some keys only the row that holds it is given: so one that came later and is before it does
// not hinder it.
func behind(s *suite, _ bool) {
	s.chain("x", "x", "y", nil)
	got := s.take(newClaim("a", 1), 2)
	s.wantRows("claimed", got, 0)
	s.finish(1, end(got[0], rows.Ready))
	x, y := value("x"), value("y")
	for _, one := range []struct {
		ask  rows.Ask
		want []int64
	}{
		{rows.Ask{Behind: []bson.RawValue{x}}, []int64{0, 2, 3}},
		{rows.Ask{Behind: []bson.RawValue{x}, Held: []bson.RawValue{y}}, []int64{0, 3}},
		{rows.Ask{Behind: []bson.RawValue{x, y}, Without: []bson.RawValue{got[0].ID}}, []int64{3}},
	} {
		found := s.candidates(10, &one.ask)
		s.wantRows("candidates", found, one.want...)
	}
	assert.Equal(s.t, check(s.Settle(s.ctx, []bson.RawValue{x, y}))(s), 0,
		"%d rows that are ready lost their key, want %d")
}

// The stream tells when a key may be had again.
func freed(s *suite, letGo bool) {
	told := Listen(s.t, s)
	s.chain("x", "y", nil)
	told.Want("insert", "arrived", "0", "arrived", "1", "arrived", "2")
	got := s.take(newClaim("a", 1), 2)
	told.Want("claim", "taken", "0", "taken", "1")
	s.finish(1, end(got[0], rows.Done))
	told.Want("done", "freed", "0")
	e := end(got[1], rows.Retrying)
	e.NotBefore = noon
	s.finish(1, e)
	if letGo {
		told.Want("retrying", "freed", "1")
	}
	check(s.Tidy(s.ctx, noon, slot("b"), 1, 10))(s)
	told.Want("due", "arrived", "1")
	got = s.take(newClaim("a", 1), 1)
	told.Want("claim again", "taken", "1")
	last := end(got[0], rows.Done)
	last.Delete = true
	s.finish(1, last)
	told.Want("deleted", "freed", "1")
}

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
		found := s.candidates(10, ask)
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
