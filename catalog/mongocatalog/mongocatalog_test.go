package mongocatalog_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/catalog/mongocatalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
)

var on = catalogtest.On

var update = flag.Bool("update", false, "write the golden files anew")

func request() catalog.Request {
	return catalog.Request{
		Session: catalog.Session{Name: "balancer", TS: bson.ObjectID{11: 1}},
		Process: "host:27017:1700000000:uuid", Who: "host:27017:1700000000:uuid:main:42",
		Why: "doing balance round", Takeover: 15 * time.Minute,
	}
}

// held returns a lock document whose holder is the session of request().
func held() bson.D {
	r := request()
	return bson.D{
		e("_id", r.Name), e("state", int32(1)), e("process", r.Process), e("ts", r.TS),
		e("fence", int64(7)),
	}
}

func found(doc any) func(bson.Raw) bson.D {
	return func(bson.Raw) bson.D { return bson.D{e("ok", 1.0), e("value", doc)} }
}

func failure(code int32, text string) func(bson.Raw) bson.D {
	return func(bson.Raw) bson.D {
		return bson.D{e("ok", 0.0), e("code", code), e("codeName", "X"), e("errmsg", text)}
	}
}

// store returns a store that uses a fake server. If limit is zero, the command timeout is one
// minute.
func store(t *testing.T, s *fakeServer, limit time.Duration) *mongocatalog.Catalog {
	t.Helper()
	opts := mongocatalog.Options{CommandTimeout: cmp.Or(limit, time.Minute)}
	return assert.Value(mongocatalog.New(s.client(t), opts))(t)
}

// connected returns a store with an open connection.
func connected(t *testing.T, s *fakeServer, limit time.Duration) *mongocatalog.Catalog {
	t.Helper()
	c := store(t, s, limit)
	for _, err := c.Hello(t.Context()); err != nil; {
		_, err = c.Hello(t.Context())
	}
	return c
}

func TestNew_Options(t *testing.T) {
	t.Parallel()
	if _, err := mongocatalog.New(nil, mongocatalog.Options{}); err == nil {
		t.Error("no error for a nil client")
	}
	client := dial(t, "mongodb://127.0.0.1:1")
	if _, err := mongocatalog.New(client, mongocatalog.Options{CommandTimeout: -1}); err == nil {
		t.Error("no error for a negative limit")
	}
	c, err := mongocatalog.New(client, mongocatalog.Options{})
	if err != nil || c.Database() != "config" || c.CommandTimeout() != 5*time.Second {
		t.Errorf("defaults: %q, %v, %v", c.Database(), c.CommandTimeout(), err)
	}
	var none context.Context
	if _, _, err := c.Begin(none); err == nil { // G8: an error, not a panic
		t.Error("no error for a nil context")
	}
}

func TestCommands_AreAsRecorded(t *testing.T) {
	t.Parallel()
	r := request()
	beat := catalog.Heartbeat{
		Process: r.Process, Seq: 5, Local: time.UnixMilli(7), Takeover: 15 * time.Minute,
		Interval: 30 * time.Second,
	}
	ping := catalog.Ping{Process: r.Process, Seq: 4, HasSeq: true}
	for name, command := range mongocatalog.Commands(r, beat, ping) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := assert.Value(bson.MarshalExtJSON(command, true, false))(t)
			var pretty strings.Builder
			enc := json.NewEncoder(&pretty)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			assert.Must(t, enc.Encode(json.RawMessage(text)))
			golden := filepath.Join("testdata", name+".json")
			if *update {
				assert.Must(t, os.WriteFile(golden, []byte(pretty.String()), 0o644))
			}
			want := assert.Value(os.ReadFile(golden))(t)
			if string(want) != pretty.String() {
				t.Errorf("command\nwant %s\ngot  %s", want, pretty.String())
			}
		})
	}
}

func TestCatalog_Acquire_IsOneCommandWhateverTheURISays(t *testing.T) { // E9, E10
	t.Parallel()
	s := serve(t, found(held()))
	c := connected(t, s, 3*time.Second)
	l, err := on(c).Acquire(t.Context(), request())
	if err != nil || l.Fence != 7 || !l.Held {
		t.Fatalf("%+v, %v", l, err)
	}
	sent := s.sent()
	if len(sent) != 1 {
		t.Fatalf("want one command, got %v", sent)
	}
	if w, _ := sent[0].Lookup("writeConcern", "w").StringValueOK(); w != "majority" {
		t.Errorf("write concern: %v", sent[0].Lookup("writeConcern"))
	}
	ms, _ := sent[0].Lookup("maxTimeMS").AsInt64OK()
	if ms < 1 || ms > 3000 {
		t.Errorf("the command has no valid time limit: maxTimeMS %d", ms)
	}
	if sent[0].Lookup("txnNumber").Type != 0 {
		t.Error("sent as a retryable write")
	}
}

// If the server does not reply to a write, the outcome is unknown, and the store does not send the
// write again.
func TestCatalog_Writes_NoReply_UnknownAfterOneTry(t *testing.T) { // D7, D8, I2
	t.Parallel()
	for name := range catalogtest.Writes(memcatalog.New(memcatalog.Options{}), request()) {
		for how, reply := range map[string]bson.D{"broken": nil, "silent": hang} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				s := serve(t, writing(reply))
				c := connected(t, s, map[string]time.Duration{"silent": 5 * time.Second}[how])
				err := catalogtest.Writes(c, request())[name](t.Context())
				if !errors.Is(err, catalog.ErrUnknownOutcome) || errors.Is(err, catalog.ErrUnavailable) {
					t.Errorf("want an unknown outcome, got %v", err)
				}
				assert.Equal(t, writesIn(s), 1, "sent %d times, want %d")
			})
		}
	}
}

// writing returns the answers of a fake server. The server answers each write with reply. It
// answers a read of the lock "waited" with a free lock that has a waiter, and any other read with a
// held lock.
func writing(reply bson.D) func(bson.Raw) bson.D {
	return func(command bson.Raw) bson.D {
		switch {
		case command.Lookup("aggregate").Type != 0:
			doc := held()
			if strings.Contains(command.Lookup("pipeline").String(), "waited") {
				doc = bson.D{e("_id", "waited"), e("state", int32(0)), e("waiters", bson.A{
					transition.Entry(request(), time.UnixMilli(5))})}
			}
			return page(bson.D{e("lock", doc), e("now", bson.DateTime(6))})
		case command.Lookup("find").Type != 0:
			return page(held())
		}
		return reply
	}
}

// page returns the reply to a read that finds the given documents.
func page(docs ...any) bson.D {
	return bson.D{e("ok", 1.0), e("cursor", bson.D{
		e("id", int64(0)), e("ns", "config.locks"), e("firstBatch", append(bson.A{}, docs...))})}
}

func TestCatalog_Reads_BrokenConnection_AreNeverUnknown(t *testing.T) {
	t.Parallel()
	for name := range catalogtest.Reads(memcatalog.New(memcatalog.Options{}), request()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(bson.Raw) bson.D { return nil })
			err := catalogtest.Reads(store(t, s, 300*time.Millisecond), request())[name](t.Context())
			if err == nil || errors.Is(err, catalog.ErrUnknownOutcome) {
				t.Errorf("want an error that is not unknown, got %v", err)
			}
		})
	}
}

// Enter returns an error for each reply that is not a success, after one command.
func TestCatalog_Enter_Replies(t *testing.T) {
	t.Parallel()
	const dup = "E11000 duplicate key error collection: config.locks index: "
	const large, crowd = "Resulting document is larger than 16777216", "too many holders and waiters"
	concern := func(bson.Raw) bson.D {
		return append(found(held())(nil), e("writeConcernError", bson.D{
			e("code", int32(64)), e("errmsg", "timed out")}))
	}
	foreign := failure(11000, dup+`process_1 dup key: { process: "x" }`) // another program's index
	for _, c := range []struct {
		name   string
		how    catalog.EnterMode
		answer func(bson.Raw) bson.D
		want   error // nil if the command was not applied, and waiting does not help
		text   string
	}{
		{"WriteConcernError", catalog.TryPlain, concern, catalog.ErrUnknownOutcome, "timed out"}, // E5
		{"NotPrimary", catalog.TryPlain, failure(10107, "x"), catalog.ErrUnavailable, ""},
		{"Held", catalog.TryPlain, failure(11000, dup+`_id_ dup key: { _id: "balancer" }`),
			catalog.ErrNotFree, ""},
		{"ForeignIndex", catalog.TryPlain, foreign, nil, "process_1"}, // F22
		{"ForeignIndexQueued", catalog.Queue, foreign, nil, "process_1"},
		{"TooLarge", catalog.Queue, failure(10334, large), nil, crowd},
		{"UpdatedTooLarge", catalog.Queue, failure(17419, large), nil, crowd},
		{"UpsertedTooLarge", catalog.Queue, failure(17420, large), nil, crowd},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.answer)
			_, err := on(store(t, s, 0)).Enter(t.Context(), request(), c.how)
			if err == nil || !strings.Contains(err.Error(), c.text) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("want %v, %s\ngot  %v", c.want, c.text, err)
			}
			if c.want == nil && (errors.Is(err, catalog.ErrNotFree) || verdict(err) != notApplied) {
				t.Errorf("want an error that is certain and final, got %v", err)
			}
			assert.Equal(t, len(s.sent()), 1, "%d commands, want %d")
		})
	}
}

func TestCatalog_NoServer_IsUnavailableAndKeepsSecrets(t *testing.T) { // G11, E4
	t.Parallel()
	client := dial(t, "mongodb://root:s3cret@127.0.0.1:1/?serverSelectionTimeoutMS=200")
	c, err := mongocatalog.New(client, mongocatalog.Options{CommandTimeout: time.Second})
	assert.Must(t, err)
	_, err = on(c).Acquire(t.Context(), request())
	if !errors.Is(err, catalog.ErrUnavailable) || errors.Is(err, catalog.ErrUnknownOutcome) {
		t.Errorf("want ErrUnavailable, got %v", err)
	}
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("secret in %v", err)
	}
}

func TestCatalog_Reads_AskForMajority(t *testing.T) { // E9, E10
	t.Parallel()
	s := serve(t, func(command bson.Raw) bson.D {
		return bson.D{e("ok", 1.0), e("cursor", bson.D{
			e("id", int64(0)), e("ns", "config.locks"), e("firstBatch", bson.A{})})}
	})
	c := store(t, s, 0)
	assert.Value(catalog.LookAt(t.Context(), c, "x"))(t)
	assert.MustBe(t, assert.Err(c.Read(t.Context(), "x")), catalog.ErrNotFound)
	want := []string{"majority", "linearizable"}
	for i, command := range s.sent() {
		level, _ := command.Lookup("readConcern", "level").StringValueOK()
		if i >= len(want) || level != want[i] {
			t.Errorf("command %d: read concern %q", i, level)
		}
	}
	if len(s.sent()) != 2 {
		t.Errorf("want two commands, got %v", s.sent())
	}
}

// If Snapshots fails for many locks, the error text is short and names three of the locks.
func TestSnapshots_OfManyFails_NamesAFew(t *testing.T) {
	t.Parallel()
	s := serve(t, failure(13, "not allowed"))
	for n, want := range map[int]string{
		1: `"a0"`, 3: `"a0", "a1", "a2":`, 10_000: `"a0", "a1", "a2" and 9997 more:`,
	} {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint("a", i))
		}
		_, err := ownStore(t, s).Snapshots(t.Context(), names)
		if err == nil || len(err.Error()) > 400 || !strings.Contains(err.Error(), "read "+want) {
			t.Errorf("of %d names: %.300v", n, err)
		}
	}
}

// Held sends one command for 10,000 locks.
func TestHeld_OfManyLocks_IsOneCommand(t *testing.T) {
	t.Parallel()
	const locks = 10_000
	s := serve(t, func(command bson.Raw) bson.D {
		size, ok := command.Lookup("batchSize").AsInt64OK()
		if !ok {
			size = 101 // a server's default
		}
		batch := make(bson.A, min(size, locks))
		for i := range batch {
			doc := held()
			doc[0].Value = fmt.Sprint(i)
			batch[i] = doc
		}
		return bson.D{e("ok", 1.0), e("cursor", bson.D{
			e("id", locks-int64(len(batch))), e("ns", "config.locks"), e("firstBatch", batch)})}
	})
	c := store(t, s, 0)
	sessions := assert.Value(c.Held(t.Context(), request().Process))(t)
	if sent := len(s.sent()); len(sessions) != locks || sent != 1 {
		t.Errorf("%d locks with %d commands, want %d with 1", len(sessions), sent, locks)
	}
}
