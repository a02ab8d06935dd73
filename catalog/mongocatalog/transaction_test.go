package mongocatalog_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/internal/test/assert"
)

// A script maps the name of a command to its replies, in order. The last reply is repeated.
type script map[string][]bson.D

var (
	done     = bson.D{e("ok", 1.0), e("n", int32(1)), e("nModified", int32(1))}
	cut      = bson.D(nil)
	rejected = answer(13)
	conflict = answer(112, "TransientTransactionError")
	undone   = answer(251, "TransientTransactionError")
	// The server omits the label TransientTransactionError if it cannot guarantee that the abort
	// reached a majority.
	undoneHere = answer(251)
	moved      = answer(11602, "RetryableWriteError")
)

func answer(code int32, labels ...string) bson.D {
	list := bson.A{}
	for _, l := range labels {
		list = append(list, l)
	}
	return append(failure(code, "no")(nil), e("errorLabels", list))
}

func kindOf(command bson.Raw) string {
	elements, err := command.Elements()
	if err != nil || len(elements) == 0 {
		return ""
	}
	return elements[0].Key()
}

// transacting returns a store and its fake server. The server takes its replies from the script. A
// command without replies in the script succeeds.
func transacting(t *testing.T, s script) (*mongocatalog.Catalog, *fakeServer) {
	t.Helper()
	server := serve(t, nil)
	server.answer = func(command bson.Raw) bson.D {
		kind := kindOf(command)
		server.mu.Lock()
		defer server.mu.Unlock()
		left := s[kind]
		if len(left) == 0 {
			if kind == "findAndModify" {
				return bson.D{e("ok", 1.0), e("value", held())}
			}
			return done
		}
		if len(left) > 1 {
			s[kind] = left[1:]
		}
		return left[0]
	}
	c, err := mongocatalog.New(server.client(t), mongocatalog.Options{Database: "distlock"})
	assert.Must(t, err)
	return c, server
}

func (s *fakeServer) kinds() []string {
	var kinds []string
	for _, command := range s.sent() {
		kinds = append(kinds, kindOf(command))
	}
	return kinds
}

// If a transaction conflicts with another write to the lock document, Transact first repeats only
// its own write to the lock document. When that write has succeeded, Transact calls the given
// function once more.
func TestTransact_Conflict_WritesTheLockFirst(t *testing.T) {
	t.Parallel()
	c, server := transacting(t, script{"update": {conflict, conflict, conflict, conflict, done}})
	runs := 0
	err := c.Transact(t.Context(), request().Session, func(context.Context) error {
		runs++
		server.mu.Lock()
		defer server.mu.Unlock()
		work, err := bson.Marshal(bson.D{e("work", runs)})
		server.commands = append(server.commands, work)
		return err
	})
	if err != nil || runs != 2 {
		t.Errorf("%d runs: %v", runs, err)
	}
	aborts := func(kind string) bool { return kind == "abortTransaction" }
	got := slices.DeleteFunc(server.kinds(), aborts)
	want := strings.Fields("work update update update update update work commitTransaction")
	assert.Slices(t, got, want, "sent %v\nwant %v")
}

// If the session does not hold the lock, Transact does not commit the transaction.
func TestTransact_LockLost_IsNotCommitted(t *testing.T) {
	t.Parallel()
	none := bson.D{e("ok", 1.0), e("n", int32(0)), e("nModified", int32(0))}
	c, server := transacting(t, script{"update": {none}, "find": {page(held())}})
	err := c.Transact(t.Context(), request().Session, func(context.Context) error { return nil })
	assert.Is(t, err, catalog.ErrNoMatch)
	if kinds := server.kinds(); slices.Contains(kinds, "commitTransaction") {
		t.Errorf("sent %v", kinds)
	}
}

// Transact calls the given function again only if the server reports that it aborted the
// transaction. If Transact cannot learn whether the commit was applied, the error matches
// ErrUnknownOutcome. The driver sends each commit at most twice.
func TestTransact_CommitOutcome(t *testing.T) {
	t.Parallel()
	unknown := catalog.ErrUnknownOutcome
	for name, c := range map[string]struct {
		commits []bson.D
		runs    int
		want    error
	}{
		"made":                             {[]bson.D{done}, 1, nil},
		"broken once":                      {[]bson.D{cut, done}, 1, nil},
		"broken twice":                     {[]bson.D{cut, cut, done}, 1, nil},
		"broken, refused":                  {[]bson.D{cut, rejected}, 1, unknown},
		"broken twice, refused":            {[]bson.D{cut, cut, rejected}, 1, unknown},
		"broken twice, a conflict, made":   {[]bson.D{cut, cut, conflict, done}, 1, nil},
		"broken twice, a conflict, undone": {[]bson.D{cut, cut, conflict, undone, done}, 2, nil},
		"undone":                           {[]bson.D{undone, done}, 2, nil},
		"broken, undone":                   {[]bson.D{cut, undone, done}, 2, nil},
		"broken twice, undone":             {[]bson.D{cut, cut, undone, done}, 2, nil},
		"broken, undone, perhaps not by a majority": {
			[]bson.D{cut, undoneHere, undoneHere, undone, done}, 2, nil,
		},
		"the server is changing its role": {[]bson.D{moved, moved, moved, done}, 1, nil},
		"broken again and again":          {[]bson.D{cut}, 1, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, server := transacting(t, script{"commitTransaction": c.commits})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if answer := server.answer; name == "broken again and again" {
				server.answer = func(command bson.Raw) bson.D { // ctx ends a second after the commit
					if kindOf(command) == "commitTransaction" {
						time.AfterFunc(time.Second, cancel)
					}
					return answer(command)
				}
			}
			defer cancel()
			runs := 0
			err := store.Transact(ctx, request().Session, func(context.Context) error { runs++; return nil })
			if !errors.Is(err, c.want) || runs != c.runs {
				t.Errorf("%d runs, %v, want %d and %v", runs, err, c.runs, c.want)
			}
		})
	}
}

// Transact passes the context of its transaction to the given function. With this context, Renew
// and PutFirst of the session that holds the lock are part of the transaction. All other operations
// are outside of the transaction.
func TestTransact_InsideAndOutside(t *testing.T) {
	t.Parallel()
	c, server := transacting(t, nil)
	s := request().Session
	inside := func(t *testing.T, want bool, do func() error) {
		t.Helper()
		before := len(server.sent())
		_ = do() // fails, because the script has no cursor
		sent := server.sent()[before:]
		if len(sent) == 0 {
			t.Error("nothing was sent")
		}
		for _, command := range sent {
			if is := command.Lookup("autocommit").Type != 0; is != want {
				t.Errorf("in the transaction: %v, want %v: %v", is, want, command)
			}
			if want && command.Lookup("writeConcern").Type != 0 {
				t.Errorf("a write concern in a transaction: %v", command)
			}
		}
	}
	err := c.Transact(t.Context(), s, func(ctx context.Context) error {
		renew := func(s catalog.Session, ctx context.Context) func() error {
			return func() error {
				return on(c).Renew(ctx, catalog.Renewal{
					Session: s, Number: 2, Life: time.Minute, Local: time.UnixMilli(5),
				})
			}
		}
		inside(t, true, renew(s, ctx))
		inside(t, true, func() error { return on(c).PutFirst(ctx, s, bson.NewObjectID()) })
		inside(t, false, renew(s, t.Context()))
		other := s
		other.TS = bson.NewObjectID()
		inside(t, false, renew(other, ctx))
		inside(t, false, func() error { return assert.Err(on(c).Acquire(ctx, request())) })
		return nil
	})
	assert.NoErr(t, err)
}
