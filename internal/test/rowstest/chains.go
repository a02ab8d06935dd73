package rowstest

import (
	"errors"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// RunChains tests a store with chains. A chain consists of the rows with the same key. Each case
// opens an empty store.
func RunChains(t *testing.T, open func(t *testing.T, o rows.Options) rows.Store) {
	for name, test := range map[string]func(*suite){
		"Chains_OneRowOfAKey":        oneOfAKey,
		"Chains_KeysOfEveryKind":     kinds,
		"Chains_KeysThatAreNoValues": oddKeys,
		"Chains_HoldUntilDoneOrDead": holdUntil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&suite{t, t.Context(), open(t, rows.Options{Key: "of.key"})})
		})
	}
}

// chain inserts one row for each of the keys. The row for a nil key has no key.
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

// free claims rows until no row can be claimed. It returns the rows in the order of the claims, and
// the sorted numbers of the rows.
func (s *suite) free() (got []rows.Row, ids []int64) {
	s.t.Helper()
	c := newClaim("a", 1)
	for {
		held := check(s.Held(s.ctx))(s)
		row, err := s.Claim(s.ctx, c, rows.Ask{Held: held})
		if h := (*rows.HeldError)(nil); errors.As(err, &h) { // the key is null, which Held omits
			row, err = s.Claim(s.ctx, c, rows.Ask{Held: append(held, value(bson.Null{}))})
		}
		assert.Must(s.t, err)
		if row == nil {
			slices.Sort(ids)
			return got, ids
		}
		got, ids = append(got, *row), append(ids, number(row.ID))
		c.Batch = bson.NewObjectID()
	}
}

func value(v any) bson.RawValue {
	kind, data, err := bson.MarshalValue(v)
	if err != nil {
		panic(err)
	}
	return bson.RawValue{Type: kind, Value: data}
}

// Only the first row of a key can be claimed, and a claim of one key leaves the other keys free.
func oneOfAKey(s *suite) {
	s.chain("x", "x", "y", "x", "z", "y")
	one := s.one(newClaim("a", 1), rows.Ask{})
	if one == nil || number(one.ID) != 0 || one.Mark.Holds == "" {
		s.t.Fatalf("claimed %+v, want the first row, which holds its key", one)
	}
	_, err := s.Claim(s.ctx, newClaim("b", 1), rows.Ask{})
	var held *rows.HeldError
	if !errors.As(err, &held) {
		s.t.Errorf("the second row of the key: %v, want a HeldError", err)
	}
	_, ids := s.free()
	assert.Slices(s.t, ids, []int64{2, 4}, "free rows are %v, want %v")
	s.end(1, one.End(rows.Done))
	_, ids = s.free()
	assert.Slices(s.t, ids, []int64{1}, "then %v, want %v")
}

// Equal numbers of different types are one key, and null is a key. A row with a list as its key is
// never claimed.
func kinds(s *suite) {
	null := bson.Null{}
	s.chain(int32(1), int64(1), 1.0, null, null, nil, nil, bson.A{int32(1), "x"}, bson.A{}, "1")
	got, ids := s.free()
	assert.Slices(s.t, ids, []int64{0, 3, 5, 6, 9}, "claimed %v, want %v")
	odd := check(s.Odd(s.ctx, 0))(s)
	if len(odd) != 2 || number(odd[0].ID) != 7 || number(odd[1].ID) != 8 ||
		odd[0].Field != "of.key" {
		s.t.Errorf("odd rows: %v", odd)
	}
	assert.Equal(s.t, check(s.Count(s.ctx, 0))(s).Odd, 2, "%d rows count as odd, want %d")
	for _, row := range got {
		s.end(1, row.End(rows.Done))
	}
	_, ids = s.free()
	assert.Slices(s.t, ids, []int64{1, 4}, "then %v, want %v")
}

// A claimed row holds its key until the row is done or dead. Until then no other row with that key
// is claimed.
func holdUntil(s *suite) {
	s.chain("x", "x", "x")
	second := s.take(newClaim("a", 1), 1)[0] // the first row in order
	s.end(1, second.Uncounted(rows.Ready))
	ready, ids := s.free()
	assert.Slices(s.t, ids, []int64{0}, "claimed %v, want %v")
	e := ready[0].End(rows.Retrying)
	e.NotBefore = noon
	s.end(1, e)
	_, ids = s.free()
	assert.Equal(s.t, len(ids), 0, "%d rows are free beside a retry, want %d")
	check(s.Wake(s.ctx, noon))(s)
	assert.Must(s.t, s.Insert(s.ctx, []any{bson.D{{Key: "_id", Value: int32(-1)},
		{Key: "of", Value: bson.D{{Key: "key", Value: "x"}}}}}))
	ready, ids = s.free()
	assert.Slices(s.t, ids, []int64{0}, "claimed %v, want %v, which holds the key")
	s.end(1, ready[0].End(rows.Dead))
	ready, ids = s.free()
	if len(ids) != 1 || ids[0] == 0 || ready[0].Mark.Holds == "" {
		s.t.Errorf("then %v are free, want one other row", ids)
	}
	assert.Equal(s.t, check(s.Settle(s.ctx))(s), 0, "Settle released %d keys, want %d")
}

// A query cannot compare some kinds of keys. Even so, only one row of such a key is claimed at a
// time. Rows with other keys are claimed meanwhile.
func oddKeys(s *suite) {
	odd, one, more := bson.Undefined{}, bson.Regex{Pattern: "x"}, bson.D{{Key: "$gt", Value: 1}}
	s.chain(odd, one, more, odd, one, more, "x")
	got, ids := s.free()
	assert.Slices(s.t, ids, []int64{0, 1, 2, 6}, "claimed %v, want %v")
	for _, row := range got {
		s.end(1, row.End(rows.Done))
	}
	_, ids = s.free()
	assert.Slices(s.t, ids, []int64{3, 4, 5}, "then %v, want %v")
}
