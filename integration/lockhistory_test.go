package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/distlock"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
)

// read returns the kinds and fences of the entries that match q, and the ids of malformed
// documents.
func (w *world) read(t testing.TB, q history.Query) (entries, malformed []string) {
	t.Helper()
	all, bad, err := history.Read(t.Context(), w.d.app, w.db.Name(), q)
	assert.Must(t, err)
	for _, e := range all {
		entries = append(entries, fmt.Sprint(e.Kind, " ", e.Fence))
	}
	for _, e := range bad {
		malformed = append(malformed, e.ID)
	}
	return entries, malformed
}

// happen makes a Log observe n events with the fences 1 to n, at equal intervals. The last event
// has the present time.
func happen(past *history.Log, name string, n int, between time.Duration) {
	now := time.Now()
	for i := range n {
		at := now.Add(-time.Duration(n-1-i) * between)
		past.Observe(distlock.Event{Kind: distlock.EventAcquired, At: at, Name: name,
			Fence: int64(i) + 1})
	}
}

// Read returns entries newest first. With a limit or an age, it omits the oldest entries. It
// returns malformed documents separately.
func TestHistory_Query_NewestFirst(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		past := assert.Value(history.New(w.d.app, w.db.Name(), history.Options{}))(t)
		name, quick := w.name("job"), w.name("quick")
		happen(past, name, 5, time.Minute)
		happen(past, quick, 5, 0)
		assert.Must(t, past.Close(t.Context()))
		all := []string{"acquired 5", "acquired 4", "acquired 3", "acquired 2", "acquired 1"}
		for _, c := range []struct {
			q    history.Query
			want int
		}{
			{history.Query{Name: name}, 5},
			{history.Query{Name: quick}, 5}, // all at the same time
			{history.Query{Name: name, Limit: 3}, 3},
			{history.Query{Name: name, Since: time.Now().Add(-150 * time.Second)}, 3},
			{history.Query{Name: name, Since: time.Now().Add(time.Hour)}, 0},
		} {
			got, _ := w.read(t, c.q)
			assert.Slices(t, got, all[:c.want], "entries %q, want %q")
		}
		for _, odd := range []bson.D{
			{field("kind", 7), field("at", time.Now())}, {field("kind", "lost"), field("at", "noon")},
			{field("kind", bson.A{"lost"}), field("at", time.Now())},
		} {
			odd = append(odd, field("_id", bson.NewObjectID()), field("name", name))
			assert.Value(w.db.Collection(history.Collection).InsertOne(t.Context(), odd))(t)
		}
		got, malformed := w.read(t, history.Query{Name: name})
		assert.Slices(t, got, all, "entries %q, want %q")
		assert.Equal(t, len(malformed), 3, "%d malformed, want %d")
	})
}

// The first entry of a Log creates a TTL index with the age Options.Keep. If the server refuses the
// index, the Log keeps only the newest 1,000 entries. Documents without a date are not removed. A
// Log with another Keep does not change the index, logs this once, and still records its entries.
func TestHistory_Collection_IsBounded(t *testing.T) {
	t.Parallel()
	forThese(t, named("embedded", "standalone"), func(t *testing.T, w *world) {
		db := w.d.app.Database(w.db.Name() + "_bound") // other tests' index keeps thirty days
		t.Cleanup(func() { assert.NoErr(t, db.Drop(context.WithoutCancel(t.Context()))) })
		var indexes bson.Raw
		monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "createIndexes" {
				indexes = e.Command
			}
		}}
		client := privateClient(t, options.Client().ApplyURI(w.d.uri).SetMonitor(monitor))
		assert.Value(db.Collection(history.Collection).InsertOne(t.Context(),
			bson.D{field("_id", "odd"), field("at", 7)}))(t)
		for range 2 {
			past := assert.Value(history.New(client, db.Name(), history.Options{Keep: 48 * time.Hour}))(t)
			happen(past, "job", 1030, time.Minute)
			assert.Must(t, past.Close(t.Context()))
		}
		age, _ := indexes.Lookup("indexes", "0", "expireAfterSeconds").AsInt64OK()
		if key := indexes.Lookup("indexes", "0", "key").String(); age != 48*3600 ||
			!strings.Contains(key, `"at"`) {
			t.Errorf("sent %v", indexes)
		}
		entries, malformed, err := history.Read(t.Context(), client, db.Name(), history.Query{})
		assert.Must(t, err)
		want := map[string]int{"embedded": 1000, "standalone": 2060}[w.d.name]
		if len(entries) != want || len(malformed) != 1 || entries[0].Fence != 1030 {
			t.Errorf("%d entries, want %d; %d malformed", len(entries), want, len(malformed))
		}
		if w.d.name == "embedded" {
			oldest := entries[len(entries)-1].Fence
			assert.Equal(t, oldest, 531, "the oldest of two times 500 entries is %d, want %d")
			return
		}
		var log assert.Log
		past := assert.Value(history.New(client, db.Name(),
			history.Options{Keep: 72 * time.Hour, Logger: zerolog.New(&log)}))(t)
		happen(past, "other", 5, time.Minute)
		assert.Must(t, past.Close(t.Context()))
		entries, _, err = history.Read(t.Context(), client, db.Name(), history.Query{Name: "other"})
		if text := log.String(); err != nil || len(entries) != 5 || strings.Count(text, "\n") != 1 ||
			!strings.Contains(text, "indexes of the history are not created") {
			t.Errorf("%d entries, %v; logged %s", len(entries), err, text)
		}
	})
}

// If the reply to an insert is lost, the Log inserts the entries again, and each entry exists once.
func TestHistory_ReplyLost_EntriesAreThereOnce(t *testing.T) {
	t.Parallel()
	forThese(t, wired, func(t *testing.T, w *world) {
		wire, name := w.d.through(t), w.name("job")
		var once sync.Once
		monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "insert" {
				once.Do(func() { wire.set(stalling) })
			}
		}}
		client := privateClient(t, options.Client().ApplyURI(wire.uri()).SetRetryWrites(false).
			SetMonitor(monitor))
		past := assert.Value(history.New(client, w.db.Name(), history.Options{}))(t)
		want := func() {
			t.Helper()
			eventually(t, freeLimit, "three entries exist", func() bool {
				got, _ := w.read(t, history.Query{Name: name})
				return slices.Equal(got, []string{"acquired 3", "acquired 2", "acquired 1"})
			})
		}
		happen(past, name, 3, time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), w.d.commandLimit())
		defer cancel()
		if err := past.Close(ctx); err == nil {
			t.Error("closed although the reply was lost")
		}
		want()
		wire.mend()
		eventually(t, freeLimit, "it is closed", func() bool { return past.Close(t.Context()) == nil })
		want()
	})
}
