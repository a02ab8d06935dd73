package mongocatalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/test/assert"
)

// ownStore returns a store in a database named distlock. Unlike the database named config, it
// supports change streams.
func ownStore(t *testing.T, s *fakeServer) *mongocatalog.Catalog {
	t.Helper()
	return assert.Value(mongocatalog.New(s.client(t),
		mongocatalog.Options{Database: "distlock", CommandTimeout: time.Minute}))(t)
}

const firstUpsert = `E11000 duplicate key error collection: config.locks index: _id_ dup key: ` +
	`{ _id: "balancer" }`

// If the first command of Enter fails with a duplicate key, Enter reads the lock document.
func TestCatalog_Enter_DuplicateKey_ReadsTheDocument(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		doc  bson.D
		want error
	}{
		{"Malformed", bson.D{e("_id", "balancer"), e("state", "free")}, catalog.ErrMalformed},
		{"Held", held(), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(command bson.Raw) bson.D {
				if command.Lookup("aggregate").Type == 0 {
					return failure(11000, firstUpsert)(command)
				}
				return page(bson.D{e("lock", c.doc), e("now", bson.DateTime(6))})
			})
			l, err := on(store(t, s, 0)).Enter(t.Context(), request(), catalog.Queue)
			if !errors.Is(err, c.want) || errors.Is(err, catalog.ErrUnknownOutcome) || len(s.sent()) != 2 {
				t.Errorf("%d commands, %v", len(s.sent()), err)
			}
			if _, holds := l.HeldBy(request().TS); holds != (c.want == nil) {
				t.Errorf("holds the lock: %v", holds)
			}
		})
	}
}

// If other writers change the document before each write of Enter, Enter returns when the context
// of its caller ends. The error does not match ErrUnknownOutcome, because no write is pending.
func TestCatalog_Enter_AlwaysRefused_GivesUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var reads atomic.Int32
	s := serve(t, func(command bson.Raw) bson.D {
		if command.Lookup("aggregate").Type == 0 {
			return failure(11000, firstUpsert)(command)
		}
		if reads.Add(1) == 3 {
			cancel()
		}
		return page()
	})
	_, err := on(store(t, s, 0)).Enter(ctx, request(), catalog.Queue)
	if !errors.Is(err, context.Canceled) || errors.Is(err, catalog.ErrUnknownOutcome) {
		t.Errorf("want the error of the caller's context, got %v", err)
	}
	assert.Equal(t, reads.Load(), 3, "ended at read %d, want %d")
}

// If a lock document was deleted, Enter takes the fence of the new document from a clock. Behind a
// mongos, it uses the clock of the mongos or the time of the latest ping, whichever is later.
func TestCatalog_Enter_BehindAMongos_DocumentGone_FenceOfTheClock(t *testing.T) {
	t.Parallel()
	const router, shard = 5, 1_800_000_000_000 // clocks in the fake replies to hello and to a ping
	s := serve(t, func(command bson.Raw) bson.D {
		switch {
		case command.Lookup("aggregate").Type != 0:
			return page()
		case command.Lookup("findAndModify").StringValue() == catalog.PingsCollection:
			return found(bson.D{e("_id", request().Process), e("ping", bson.DateTime(shard))})(nil)
		}
		return found(command.Lookup("update").Document())(nil)
	})
	s.hello = bson.D{e("msg", "isdbgrid")}
	c := store(t, s, 0)
	r := request()
	r.Since = time.UnixMilli(1000)
	for _, from := range []int64{router, shard} {
		assert.Value(on(c).Enter(t.Context(), r, catalog.Queue))(t)
		sent := s.sent()
		update := sent[len(sent)-1].Lookup("update", "$set").Document()
		fence, when := update.Lookup("fence").Int64(), update.Lookup("when").DateTime()
		if fence < from || fence > from+time.Hour.Milliseconds() || when != fence {
			t.Errorf("fence %d, when %d; want the time %d", fence, when, from)
		}
		assert.Value(c.Ping(t.Context(), catalog.Heartbeat{Process: r.Process}))(t)
	}
}

// FerretDB cannot return its clock with a document. Between two replies to hello, Enter computes
// the server's clock from the clock of this machine.
func TestCatalog_Enter_OnFerretDB_ClockAdvances(t *testing.T) {
	t.Parallel()
	taken := append(held()[:4:4], e("fence", int64(transition.Seeded)), e("rev", int64(1)))
	s := serve(t, func(command bson.Raw) bson.D {
		if command.Lookup("find").Type != 0 {
			return page(taken)
		}
		return found(taken)(command)
	})
	s.build = bson.D{e("ferretdbVersion", "v1.24.2")}
	c, r := store(t, s, 0), request()
	r.TS = id(9)
	var since []bson.DateTime
	for range 2 {
		assert.Value(on(c).Enter(t.Context(), r, catalog.Queue))(t)
		sent := s.sent()
		waiter := sent[len(sent)-1].Lookup("update", "$set", "waiters", "0").Document()
		since = append(since, bson.DateTime(waiter.Lookup("since").DateTime()))
		time.Sleep(50 * time.Millisecond)
	}
	if since[1]-since[0] < 50 {
		t.Errorf("queued since %d, 50 ms later since %d", since[0], since[1])
	}
}

// If the last release found no waiters, Leave first sends a plain update. If the lock now has
// waiters, this update changes nothing, and Leave sends findAndModify. If the last release found
// waiters, Leave sends only findAndModify.
func TestCatalog_Leave_FormOfTheLastTime(t *testing.T) {
	t.Parallel()
	r := request()
	waits := true
	s := serve(t, func(command bson.Raw) bson.D {
		switch {
		case command.Lookup("updates").Type != 0:
			return bson.D{e("ok", 1.0), e("n", map[bool]int32{false: 1}[waits])}
		case waits:
			return found(append(held(), e("when", bson.DateTime(5)), e("now", bson.DateTime(5)),
				e("grants", catalog.GrantLine(r.TS, 7, r.Process))))(command)
		}
		return found(bson.D{e("_id", "balancer"), e("state", int32(0))})(command)
	})
	c := store(t, s, 0)
	for i, step := range []struct {
		waits    bool
		commands []string
	}{
		{false, []string{"update"}},
		{true, []string{"update", "findAndModify"}},
		{true, []string{"findAndModify"}},
		{false, []string{"findAndModify"}},
		{false, []string{"update"}},
	} {
		waits = step.waits
		before := len(s.sent())
		assert.Value(on(c).Leave(t.Context(), catalog.Session{Name: r.Name, TS: id(9)}))(t)
		var sent []string
		for _, command := range s.sent()[before:] {
			first, _ := command.IndexErr(0)
			sent = append(sent, first.Key())
			if command.Lookup("fields", "waiters").Type != 0 {
				t.Error("the reply has the waiters")
			}
		}
		if !slices.Equal(sent, step.commands) {
			t.Errorf("release %d: want %v, got %v", i, step.commands, sent)
		}
	}
}

// If the plain update of Leave changed nothing, and the next command fails, another Leave does not
// begin with the plain update again. So a release succeeds on a server that is too slow for both
// commands within one time limit.
func TestCatalog_Leave_FailsAfterThePlainUpdate_NextOmitsIt(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	s := serve(t, func(command bson.Raw) bson.D {
		if command.Lookup("updates").Type != 0 {
			return bson.D{e("ok", 1.0), e("n", int32(0))}
		}
		if tries.Add(1) == 1 {
			return nil
		}
		return found(bson.D{e("_id", "balancer"), e("state", int32(0))})(command)
	})
	c := store(t, s, 0)
	held := catalog.Session{Name: "balancer", TS: id(9)}
	assert.Is(t, assert.Err(on(c).Leave(t.Context(), held)), catalog.ErrUnknownOutcome)
	assert.Value(on(c).Leave(t.Context(), held))(t)
	assert.Equal(t, len(s.sent()), 3, "%d commands, want the two of the first Leave and one (%d)")
}

// Leave returns only the grants that its own command made. It does not return an older grant that
// is still in the document.
func TestCatalog_Leave_OlderGrant_IsNotReturned(t *testing.T) {
	t.Parallel()
	for _, now := range []bson.DateTime{5, 6} {
		r := request()
		answer := found(append(held(), e("when", bson.DateTime(5)), e("now", now),
			e("grants", catalog.GrantLine(r.TS, 7, r.Process)), e("evidence", "silent")))
		s := serve(t, func(command bson.Raw) bson.D {
			if command.Lookup("updates").Type != 0 {
				return bson.D{e("ok", 1.0), e("n", int32(0))}
			}
			return answer(command)
		})
		grants, err := on(store(t, s, 0)).Leave(t.Context(), catalog.Session{Name: "balancer", TS: id(9)})
		if err != nil || len(grants) != map[bson.DateTime]int{5: 1}[now] {
			t.Errorf("now %d: %+v, %v", now, grants, err)
		}
	}
}

// stream returns the answers of a fake server. The server answers the command that opens a change
// stream with the given events, and later reads with no events.
func stream(events ...any) func(bson.Raw) bson.D {
	return func(command bson.Raw) bson.D {
		batch := e("nextBatch", bson.A{})
		if command.Lookup("aggregate").Type != 0 {
			batch = e("firstBatch", append(bson.A{}, events...))
		}
		return bson.D{e("ok", 1.0), e("cursor", bson.D{
			e("id", int64(7)), e("ns", "distlock.locks"), e("postBatchResumeToken", bson.D{e("_data", "9")}),
			batch})}
	}
}

func event(kind, name string, fields ...bson.E) bson.D {
	d := bson.D{
		e("_id", bson.D{e("_data", "1")}), e("operationType", kind),
		e("documentKey", bson.D{e("_id", name)}),
	}
	if kind == "update" {
		return append(d, e("updateDescription", bson.D{e("updatedFields", bson.D(fields))}))
	}
	return append(d, e("fullDocument", bson.D(fields)))
}

// A grant stream finds the grants of its process in both kinds of change events. MongoDB 5.0
// reports the changed fields, and MongoDB 4.4 reports the whole document.
func TestGrantStream_BothFormsOfEvent_ReturnOwnGrants(t *testing.T) {
	t.Parallel()
	lines := catalog.GrantLine(id(1), 8, "p.x") + catalog.GrantLine(id(2), 9, "p") + "damaged\n" +
		catalog.GrantLine(id(3), 10, "p")
	for _, kind := range []string{"update", "replace", "insert"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := serve(t, stream(
				event(kind, "none", e("grants", catalog.GrantLine(id(1), 8, "pp"))),
				event(kind, "odd", e("grants", int32(5))),
				event(kind, "balancer", e("grants", lines), e("evidence", "silent")),
				event(kind, "next", e("grants", catalog.GrantLine(id(4), 11, "p"))),
				bson.D{e("_id", bson.D{e("_data", "2")}), e("operationType", "invalidate")},
			))
			n := assert.Value(ownStore(t, s).GrantStream(t.Context(), "p"))(t)
			defer n.Close(t.Context())
			for _, want := range []string{"2 9 silent, 3 10 silent", "4 11 "} {
				grants, err := n.Next(t.Context())
				if text := grantText(grants); err != nil || text != want {
					t.Errorf("want %q, got %q, %v", want, text, err)
				}
			}
			if _, err := n.Next(t.Context()); err == nil {
				t.Error("an invalidation does not end the stream")
			}
		})
	}
}

func grantText(grants []catalog.Grant) string {
	var parts []string
	for _, a := range grants {
		parts = append(parts, fmt.Sprintf("%d %d %s", a.TS[11], a.Fence, a.Evidence))
	}
	return strings.Join(parts, ", ")
}

func TestGrantStream_Broken_Ends(t *testing.T) {
	t.Parallel()
	opened := false
	s := serve(t, func(command bson.Raw) bson.D {
		if command.Lookup("aggregate").Type != 0 && !opened {
			opened = true
			return stream()(command)
		}
		return failure(136, "the oplog has moved on")(command) // the driver cannot resume the stream
	})
	n := assert.Value(ownStore(t, s).GrantStream(t.Context(), "p"))(t)
	defer n.Close(t.Context())
	if grants, err := n.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "moved on") {
		t.Errorf("%v, %v", grants, err)
	}
}

func TestGrantStream_NotSupported_IsErrNoGrantStream(t *testing.T) {
	t.Parallel()
	for _, code := range []int32{73, 40573, 20} {
		s := serve(t, failure(code, "no change streams"))
		_, err := ownStore(t, s).GrantStream(t.Context(), "p")
		if !errors.Is(err, catalog.ErrNoGrantStream) || len(s.sent()) != 1 {
			t.Errorf("code %d: %v", code, err)
		}
	}
	s := serve(t, failure(1, "x"))
	assert.Is(t, assert.Err(store(t, s, 0).GrantStream(t.Context(), "p")), catalog.ErrNoGrantStream)
	assert.Equal(t, len(s.sent()), 0, "database config: %d commands were sent, want %d")
	if _, err := ownStore(t, s).GrantStream(t.Context(), "p"); err == nil ||
		errors.Is(err, catalog.ErrNoGrantStream) {
		t.Errorf("another error: %v", err)
	}
}

func TestCatalog_EnterTransaction_WithoutATransaction_SendsNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, found(held()))
	for name, c := range map[string]*mongocatalog.Catalog{
		"database config": store(t, s, 0), "no session": ownStore(t, s),
	} {
		_, err := c.EnterTransaction(context.Background(), request())
		if !errors.Is(err, catalog.ErrNoTransactions) || len(s.sent()) != 0 {
			t.Errorf("%s: %v, sent %v", name, err, s.sent())
		}
	}
}
