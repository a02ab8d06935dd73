package mongocatalog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/mongocatalog"
)

// ownStore keeps its locks in a database of its own, where there are change streams.
func ownStore(t *testing.T, s *fakeServer) *mongocatalog.Catalog {
	t.Helper()
	c, err := mongocatalog.New(s.client(t), mongocatalog.Options{Database: "distlock"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const firstUpsert = `E11000 duplicate key error collection: config.locks index: _id_ dup key: ` +
	`{ _id: "balancer" }`

func TestCatalog_Enter_DuplicateKey_IsSentOnceMore(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	s := serve(t, func(command bson.Raw) bson.D {
		if calls.Add(1) == 1 {
			return failure(11000, firstUpsert)(command)
		}
		return found(held())(command)
	})
	l, err := store(t, s, 0).Enter(t.Context(), grant(), catalog.Queue)
	if _, holds := l.HeldBy(grant().TS); err != nil || !holds || len(s.sent()) != 2 {
		t.Errorf("%d commands, %+v, %v", len(s.sent()), l, err)
	}
}

func TestCatalog_Enter_DuplicateKeyAgain_LooksWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		doc  bson.D // nil when there is none
		want error
	}{
		{"Malformed", bson.D{e("_id", "balancer"), e("state", "free")}, catalog.ErrMalformed},
		{"NoneEver", nil, nil},
		{"GoodEver", held(), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(command bson.Raw) bson.D {
				if command.Lookup("find").Type == 0 {
					return failure(11000, firstUpsert)(command)
				}
				batch := bson.A{}
				if c.doc != nil {
					batch = append(batch, c.doc)
				}
				return bson.D{e("ok", 1.0), e("cursor", bson.D{
					e("id", int64(0)), e("ns", "config.locks"), e("firstBatch", batch)})}
			})
			_, err := store(t, s, 0).Enter(t.Context(), grant(), catalog.Queue)
			if err == nil || errors.Is(err, catalog.ErrUnknownOutcome) ||
				errors.Is(err, catalog.ErrMalformed) != (c.want != nil) || len(s.sent()) > 8 {
				t.Errorf("%d commands, %v", len(s.sent()), err)
			}
		})
	}
}

func TestCatalog_Enter_ForeignUniqueIndex_NamesIt(t *testing.T) { // F22
	t.Parallel()
	s := serve(t, failure(11000, strings.ReplaceAll(firstUpsert, "_id_", "process_1")))
	_, err := store(t, s, 0).Enter(t.Context(), grant(), catalog.Queue)
	if err == nil || errors.Is(err, catalog.ErrUnknownOutcome) || len(s.sent()) != 1 ||
		!strings.Contains(err.Error(), "process_1") {
		t.Errorf("want one command and the index, got %d, %v", len(s.sent()), err)
	}
}

func TestCatalog_Release_HeldLock_IsOneCommand(t *testing.T) {
	t.Parallel()
	s := serve(t, found(bson.D{e("_id", "balancer"), e("state", int32(0))}))
	if err := store(t, s, 0).Release(t.Context(), grant().Session); err != nil {
		t.Fatal(err)
	}
	sent := s.sent()
	if len(sent) != 1 || sent[0].Lookup("fields", "waiters").Type != 0 {
		t.Errorf("want one command that does not bring the line, got %v", sent)
	}
}

// The reply tells the latest grant of the document. Only one that this command made is told.
func TestCatalog_Leave_OlderGrant_IsNotTold(t *testing.T) {
	t.Parallel()
	for _, now := range []bson.DateTime{5, 6} {
		g := grant()
		s := serve(t, found(append(held(), e("when", bson.DateTime(5)), e("now", now),
			e("grants", catalog.AwardLine(g.TS, 7, g.Process)), e("evidence", "silent"))))
		awards, err := store(t, s, 0).Leave(t.Context(), catalog.Session{Name: "balancer", TS: id(9)})
		if err != nil || len(awards) != map[bson.DateTime]int{5: 1}[now] {
			t.Errorf("now %d: %+v, %v", now, awards, err)
		}
	}
}

// stream answers the opening of a change stream with events, and then with nothing more.
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

// The two shapes of an event: the fields that changed (MongoDB 5.0), the whole document (4.4).
func TestNotices_BothShapesOfEvent_TellWhatIsMine(t *testing.T) {
	t.Parallel()
	lines := catalog.AwardLine(id(1), 8, "p.x") + catalog.AwardLine(id(2), 9, "p") + "damaged\n" +
		catalog.AwardLine(id(3), 10, "p")
	for _, kind := range []string{"update", "replace", "insert"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := serve(t, stream(
				event(kind, "none", e("grants", catalog.AwardLine(id(1), 8, "pp"))),
				event(kind, "odd", e("grants", int32(5))),
				event(kind, "balancer", e("grants", lines), e("evidence", "silent")),
				event(kind, "balancer", e("grants", lines)),
				event(kind, "next", e("grants", catalog.AwardLine(id(4), 11, "p"))),
				bson.D{e("_id", bson.D{e("_data", "2")}), e("operationType", "invalidate")},
			))
			n, err := ownStore(t, s).Notices(t.Context(), "p")
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close(t.Context())
			for _, want := range []string{"2 9 silent, 3 10 silent", "4 11 "} {
				awards, err := n.Next(t.Context())
				if text := awardText(awards); err != nil || text != want {
					t.Errorf("want %q, got %q, %v", want, text, err)
				}
			}
			if _, err := n.Next(t.Context()); err == nil {
				t.Error("an invalidation does not end the stream")
			}
		})
	}
}

// awardText is the session's number, the fence and the evidence of each.
func awardText(awards []catalog.Award) string {
	var parts []string
	for _, a := range awards {
		parts = append(parts, fmt.Sprintf("%d %d %s", a.TS[11], a.Fence, a.Evidence))
	}
	return strings.Join(parts, ", ")
}

func TestNotices_BrokenStream_Ends(t *testing.T) {
	t.Parallel()
	opened := false
	s := serve(t, func(command bson.Raw) bson.D {
		if command.Lookup("aggregate").Type != 0 && !opened {
			opened = true
			return stream()(command)
		}
		return failure(136, "the oplog has moved on")(command) // the driver cannot resume from there
	})
	n, err := ownStore(t, s).Notices(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(t.Context())
	if awards, err := n.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "moved on") {
		t.Errorf("%v, %v", awards, err)
	}
}

func TestNotices_WhereThereAreNone_SaysSo(t *testing.T) {
	t.Parallel()
	for _, code := range []int32{73, 40573, 20} {
		s := serve(t, failure(code, "no change streams"))
		_, err := ownStore(t, s).Notices(t.Context(), "p")
		if !errors.Is(err, catalog.ErrNoNotices) || len(s.sent()) != 1 {
			t.Errorf("code %d: %v", code, err)
		}
	}
	s := serve(t, failure(1, "x"))
	if _, err := store(t, s, 0).Notices(t.Context(), "p"); !errors.Is(err, catalog.ErrNoNotices) ||
		len(s.sent()) != 0 {
		t.Errorf("database config: %v, sent %v", err, s.sent())
	}
	if _, err := ownStore(t, s).Notices(t.Context(), "p"); err == nil ||
		errors.Is(err, catalog.ErrNoNotices) {
		t.Errorf("another error: %v", err)
	}
}

func TestCatalog_EnterTransaction_WithoutATransaction_SendsNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, found(held()))
	for name, c := range map[string]*mongocatalog.Catalog{
		"database config": store(t, s, 0), "no session": ownStore(t, s),
	} {
		_, err := c.EnterTransaction(context.Background(), grant())
		if !errors.Is(err, catalog.ErrNoTransactions) || len(s.sent()) != 0 {
			t.Errorf("%s: %v, sent %v", name, err, s.sent())
		}
	}
}
