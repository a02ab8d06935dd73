package rowstest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// A heard is an event with its row as text.
type heard struct {
	Kind rows.EventKind
	ID   string
	Due  time.Time
}

// A Stream is what a store tells, since it was opened.
type Stream struct {
	t      *testing.T
	events chan heard
	ended  chan error
}

// Listen opens the stream of a store and waits until it is open. It skips the test where there is
// none.
func Listen(t *testing.T, store rows.Store) *Stream {
	t.Helper()
	s := &Stream{t, make(chan heard, 1000), make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ended <- store.Watch(ctx, func(e rows.Event) {
			one := heard{Kind: e.Kind, Due: e.Due}
			if n, ok := e.ID.AsInt64OK(); ok {
				one.ID = strconv.Itoa(int(n))
			} else if e.Kind != rows.Opened {
				one.ID = rows.Text(e.ID)
			}
			s.events <- one
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	s.Want("opened", string(rows.Opened), "")
	return s
}

// Want waits for events, each a kind and a row, and for no others before them.
func (s *Stream) Want(after string, want ...string) {
	s.t.Helper()
	for pair := range slices.Chunk(want, 2) {
		if got := s.next(after); string(got.Kind) != pair[0] || got.ID != pair[1] {
			s.t.Errorf("%s: %v was told, want %v", after, got, pair)
		}
	}
}

// next is the next event.
func (s *Stream) next(after string) heard {
	s.t.Helper()
	select {
	case got := <-s.events:
		return got
	case err := <-s.ended:
		if errors.Is(err, rows.ErrNoStream) {
			s.t.Skip(err)
		}
		s.t.Fatal(err)
	case <-time.After(time.Minute): // a shard that nobody writes to lets events pass each 10 s only
		s.t.Fatalf("%s: nothing was told", after)
	}
	return heard{}
}

// WantDue waits for a row that is ready, due at a time.
func (s *Stream) WantDue(after string, due time.Time, id string) {
	s.t.Helper()
	if got := s.next(after); got.Kind != rows.Arrived || got.ID != id || !got.Due.Equal(due) {
		s.t.Errorf("%s: %v was told, want row %s due at %v", after, got, id, due)
	}
}

// The stream tells which rows become ready, by whatever way, and which are claimed, for the first
// time and again, and nothing else.
func stream(s *suite) {
	told := Listen(s.t, s)
	end := func(row rows.Row, to rows.State, at time.Time) {
		s.t.Helper()
		e := end(row, to)
		e.NotBefore = at
		s.finish(1, e)
	}
	s.add(2)
	told.Want("insert", "arrived", "0", "arrived", "1")
	c := newClaim("a", 1)
	one := check(s.MarkOne(s.ctx, c, nil))(s)
	told.Want("claim", "taken", "0")
	end(*one, rows.Ready, time.Time{})
	told.Want("give back", "arrived", "0")
	c.Batch = bson.NewObjectID()
	one = check(s.MarkOne(s.ctx, c, nil))(s)
	told.Want("claim again", "taken", "0")
	end(*one, rows.Retrying, noon)
	check(s.Tidy(s.ctx, noon, slot("b"), 1, 10))(s)
	told.Want("due", "arrived", "0")
	c.Batch, c.Waiting, c.Lease = bson.NewObjectID(), true, time.Minute
	two := s.take(c, 2)
	told.Want("claim two", "taken", "0", "taken", "1")
	check(s.Renew(s.ctx, two[1]))(s)
	check(s.Tidy(s.ctx, noon, slot("a"), 1, 10))(s)
	end(two[0], rows.Done, time.Time{})
	check(s.Expire(s.ctx, noon, check(s.Current(s.ctx, ids(two[1:])))(s)[0], 10))(s)
	told.Want("renewal, done, lease over", "arrived", "1")
	c.Batch = bson.NewObjectID()
	s.take(c, 1)
	told.Want("claim a third time", "taken", "1")
	check(s.Tidy(s.ctx, noon, slot("a"), 2, 10))(s)
	told.Want("rescue", "arrived", "1")
	c.Batch = bson.NewObjectID()
	s.take(c, 1)
	check(s.GiveBack(s.ctx, c.Session, nil))(s)
	told.Want("session over", "taken", "1", "arrived", "1")
}
