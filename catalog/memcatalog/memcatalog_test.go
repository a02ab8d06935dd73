package memcatalog_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/catalogtest"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

func TestCatalog_Conforms(t *testing.T) {
	t.Parallel()
	catalogtest.Run(t, func(*testing.T) catalogtest.Store { return catalogtest.InMemory() })
}

func grant(name string, n byte) catalog.Request {
	return catalog.Request{
		Session: catalog.Session{Name: name, TS: bson.ObjectID{11: n}},
		Process: "p", Who: "p:main:1", Why: "test", Takeover: time.Minute,
	}
}

func TestCatalog_SameCalls_SameBytes(t *testing.T) {
	t.Parallel()
	run := func() []bson.Raw {
		now, id := time.UnixMilli(0), byte(0)
		c := memcatalog.New(memcatalog.Options{
			Now:         func() time.Time { now = now.Add(time.Second); return now },
			NewObjectID: func() bson.ObjectID { id++; return bson.ObjectID{0: 9, 11: id} },
		})
		ctx := t.Context()
		for i := range byte(20) {
			name := fmt.Sprint("lock-", i%7)
			if _, err := catalogtest.On(c).Acquire(ctx, grant(name, i)); err != nil {
				_, err = catalogtest.On(c).Break(ctx, catalog.Session{Name: name}, 1, "again")
				t.Log(err)
			}
			beat := catalog.Heartbeat{Process: fmt.Sprint("p-", i%3), Seq: int64(i) + 1}
			assert.NoErr(t, assert.Err(c.Ping(ctx, beat)))
		}
		return append(c.Documents("locks"), c.Documents("lockpings")...)
	}
	first, second := run(), run()
	if !slices.EqualFunc(first, second, func(a, b bson.Raw) bool { return slices.Equal(a, b) }) {
		t.Errorf("documents\nfirst  %v\nsecond %v", first, second)
	}
}

func TestCatalog_ReturnedDocument_IsACopy(t *testing.T) {
	t.Parallel()
	c := memcatalog.New(memcatalog.Options{})
	assert.Value(catalogtest.On(c).Acquire(t.Context(), grant("a", 1)))(t)
	clear(c.Document("locks", "a"))
	clear(c.Documents("locks")[0])
	if l, err := c.Read(t.Context(), "a"); err != nil || !l.Held {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestCatalog_SetPrimary_ShowsInSnapshotAndHello(t *testing.T) {
	t.Parallel()
	c := memcatalog.New(memcatalog.Options{Primary: "term 1"})
	assert.Value(catalogtest.On(c).Acquire(t.Context(), grant("a", 1)))(t)
	for _, want := range []string{"term 1", "term 2"} {
		snapshot, err := catalog.LookAt(t.Context(), c, "a")
		server, err2 := c.Hello(t.Context())
		if err != nil || err2 != nil || snapshot.Primary != want || server.Primary != want {
			t.Errorf("want %q, got %q and %q", want, snapshot.Primary, server.Primary)
		}
		c.SetPrimary("term 2")
	}
}

func TestCatalog_Put_RefusesWhatNoServerHas(t *testing.T) {
	t.Parallel()
	c := memcatalog.New(memcatalog.Options{})
	if err := c.Put("other", bson.D{{Key: "_id", Value: "x"}}); err == nil {
		t.Error("no error for an unknown collection")
	}
	if err := c.Put("locks", bson.D{{Key: "state", Value: 0}}); err == nil {
		t.Error("no error for a document without _id")
	}
}

func TestCatalog_BreakStreams_EndsOpenStreamsWithAnError(t *testing.T) {
	t.Parallel()
	c := memcatalog.New(memcatalog.Options{})
	ctx := t.Context()
	var streams [2]catalog.GrantStream
	for i := range streams {
		n := assert.Value(c.GrantStream(ctx, "p"))(t)
		streams[i] = n
	}
	next := make(chan error)
	go func() {
		_, err := streams[0].Next(ctx)
		next <- err
	}()
	c.BreakStreams()
	if err := <-next; err == nil || ctx.Err() != nil {
		t.Errorf("stream with a waiting Next: %v", err)
	}
	for range 2 {
		if grants, err := streams[1].Next(ctx); err == nil {
			t.Errorf("stream without a waiting Next: %+v", grants)
		}
	}
	n, err := c.GrantStream(ctx, "p") // a stream opened after BreakStreams
	assert.Must(t, err)
	g := grant("a", 1)
	assert.Value(catalogtest.On(c).Enter(ctx, g, catalog.Queue))(t)
	if grants, err := n.Next(ctx); err != nil || len(grants) != 1 || grants[0].Session != g.Session {
		t.Errorf("%+v, %v", grants, err)
	}
	for _, n := range append(streams[:], n) {
		n.Close(ctx)
	}
}

func TestCatalog_BreakStreams_EarlierGrantsStillArrive(t *testing.T) {
	t.Parallel()
	c := memcatalog.New(memcatalog.Options{})
	n := assert.Value(c.GrantStream(t.Context(), "p"))(t)
	for i := range byte(2) {
		g := grant(fmt.Sprint("lock-", i), i+1)
		assert.Value(catalogtest.On(c).Enter(t.Context(), g, catalog.Queue))(t)
	}
	c.BreakStreams()
	if grants, err := n.Next(t.Context()); err != nil || len(grants) != 2 {
		t.Errorf("want both, got %+v, %v", grants, err)
	}
	if grants, err := n.Next(t.Context()); err == nil {
		t.Errorf("want the end, got %+v", grants)
	}
}

func TestGrantStream_Close_EndsNext(t *testing.T) {
	t.Parallel()
	c := memcatalog.New(memcatalog.Options{})
	n := assert.Value(c.GrantStream(t.Context(), "p"))(t)
	next := make(chan error)
	go func() {
		_, err := n.Next(t.Context())
		next <- err
	}()
	n.Close(t.Context())
	if err := <-next; err == nil {
		t.Error("want an error")
	}
}
