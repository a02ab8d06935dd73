package rowstest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/assert"
)

// Of those who add a row with the same key at the same time one does, and nobody else as long as
// its document is there, whatever becomes of the row. Rows without a key are not concerned.
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
	assert.Equal(s.t, inserted.Load(), keys, "%d rows were added, want %d")
	var ends []rows.Ending
	for _, row := range s.take(newClaim("a", 1), 10) {
		if key, is := row.Doc.Lookup("key").StringValueOK(); is && row.Mark.Unique != key {
			s.t.Errorf("%v is claimed as %+v", row.Doc, row.Mark)
		}
		e := end(row, rows.Done)
		e.At, e.Delete = noon, row.Mark.Unique == "key 2"
		ends = append(ends, e)
	}
	s.finish(3+keys, ends...)
	for k := range keys {
		insert(fmt.Sprint("key ", k))
	}
	s.want(rows.Counts{Ready: 1, Done: 3 + keys - 1})
	assert.NoErr(s.t, s.Insert(s.ctx, []any{bson.D{{Key: "_id", Value: 50}}}))
	if _, err := s.InsertUnique(s.ctx, "another", bson.D{{Key: "_id", Value: 50}}); err == nil {
		s.t.Error("a document whose _id is taken was added, or is said to be there by its key")
	}
}
