package integration_test

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// A mongosReader is what a mongos, or a shell script of its time, knows of a lock document.
type mongosReader struct {
	State   int           `bson:"state"`
	Process string        `bson:"process"`
	Who     string        `bson:"who"`
	Why     string        `bson:"why"`
	TS      bson.ObjectID `bson:"ts"`
	When    time.Time     `bson:"when"`
}

// wantSeen checks that who knows nothing of lines and sharers sees one holder.
func (w *world) wantSeen(t testing.TB, name string, g *distlock.TryGuard, process, why string) {
	t.Helper()
	var seen mongosReader
	assert.Must(t, bson.Unmarshal(w.document(t, catalog.LocksCollection, name), &seen))
	if seen.State != 1 || seen.Process != process || seen.TS != g.Session() || seen.Why != why ||
		!strings.HasPrefix(seen.Who, process+":") || w.now(t).Sub(seen.When) > 10*time.Minute {
		t.Errorf("a mongos sees %+v, want %s with session %v", seen, process, g.Session())
	}
}

// The line stands in the lock document as section 4 of the design has it, field by field and type
// by type, and beside it the holder as mongos wrote it, before a hand-over and after it.
func TestLock_Waiting_DocumentsAsDesigned(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		name := w.name("balancer")
		a, b, c := w.start(t, calm), w.start(t, calm), w.start(t, calm)
		g := assert.Value(w.try(t, a, name, distlock.Why("doing balance round")))(t)
		other := w.mustTry(t, b, w.name("other"))
		before := w.now(t).Truncate(time.Millisecond)
		first := w.queue(t, b, name, distlock.Why("wants it"), distlock.Holding(other))
		second := w.queue(t, c, name, distlock.Shared(), distlock.Holding())
		shape := map[string]bson.Type{
			"_id": bson.TypeString, "state": bson.TypeInt32, "process": bson.TypeString,
			"who": bson.TypeString, "why": bson.TypeString, "when": bson.TypeDateTime,
			"ts": bson.TypeObjectID, "fence": bson.TypeInt64, "takeoverMS": bson.TypeInt64,
			"rev": bson.TypeInt64, "waiters": bson.TypeArray,
		}
		raw := w.document(t, catalog.LocksCollection, name)
		wantShape(t, raw, shape)
		w.wantSeen(t, name, g, a.Process(), "doing balance round")
		waiter := map[string]bson.Type{
			"ts": bson.TypeObjectID, "process": bson.TypeString, "who": bson.TypeString,
			"why": bson.TypeString, "takeoverMS": bson.TypeInt64, "mode": bson.TypeString,
			"since": bson.TypeDateTime,
		}
		wantShape(t, raw.Lookup("waiters", "1").Document(), waiter)
		wantValues(t, raw.Lookup("waiters", "1").Document(), map[string]any{
			"process": c.Process(), "mode": "shared", "why": "",
			"takeoverMS": c.Config().Takeover.Milliseconds(),
		})
		waiter["holds"] = bson.TypeArray
		one := raw.Lookup("waiters", "0").Document()
		wantShape(t, one, waiter)
		wantValues(t, one, map[string]any{
			"process": b.Process(), "mode": "", "why": "wants it",
			"takeoverMS": b.Config().Takeover.Milliseconds(),
		})
		if since := one.Lookup("since").Time(); since.Before(before) || since.After(w.now(t)) {
			t.Errorf("since is %v, not the server's clock", since)
		}
		if !one.Lookup("holds", "0").Equal(rawValue(t, other.Session())) {
			t.Errorf("holds is %v, want the session of the other guard", one.Lookup("holds"))
		}

		wantReleased(t, g)
		next := wantTurn(t, first)
		raw = w.document(t, catalog.LocksCollection, name)
		shape["grants"] = bson.TypeString
		wantShape(t, raw, shape)
		w.wantSeen(t, name, next, b.Process(), "wants it")
		wantValues(t, raw, map[string]any{
			"ts": one.Lookup("ts").ObjectID(), "who": one.Lookup("who").StringValue(),
			"fence": next.Fence(), "takeoverMS": b.Config().Takeover.Milliseconds(),
		})
		wantReleased(t, next)
		last := wantTurn(t, second)
		w.wantSeen(t, name, last, c.Process(), "")
		wantReleased(t, last)
		raw = w.document(t, catalog.LocksCollection, name)
		if line, ok := raw.Lookup("waiters").ArrayOK(); ok && len(line) > 5 {
			t.Errorf("a line is left: %v", raw)
		}
		wantValues(t, raw, map[string]any{"state": int32(0), "process": c.Process(), "fence": last.Fence()})
	})
}

// Several hold a lock: each stands in sharers with a fence of its own, and who knows nothing of
// that sees the first of them as the holder. When that one goes he sees the next.
func TestShared_Held_DocumentsAsDesigned(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			mode string
			how  distlock.Option
		}{{"shared", distlock.Shared()}, {"permit", distlock.Permits(2)}} {
			name := w.name(c.mode)
			a, b := w.start(t, calm), w.start(t, calm)
			one := assert.Value(w.try(t, a, name, c.how, distlock.Why("reads")))(t)
			two := assert.Value(w.try(t, b, name, c.how, distlock.Why("reads as well")))(t)
			raw := w.document(t, catalog.LocksCollection, name)
			shape := map[string]bson.Type{
				"_id": bson.TypeString, "state": bson.TypeInt32, "process": bson.TypeString,
				"who": bson.TypeString, "why": bson.TypeString, "when": bson.TypeDateTime,
				"ts": bson.TypeObjectID, "fence": bson.TypeInt64, "takeoverMS": bson.TypeInt64,
				"rev": bson.TypeInt64, "mode": bson.TypeString, "sharers": bson.TypeArray,
				"grants": bson.TypeString,
			}
			if c.mode == "permit" {
				shape["limit"] = bson.TypeInt32
			}
			wantShape(t, raw, shape)
			wantValues(t, raw, map[string]any{"mode": c.mode, "fence": two.Fence()})
			w.wantSeen(t, name, one, a.Process(), "reads")
			for i, g := range []*distlock.TryGuard{one, two} {
				sharer := raw.Lookup("sharers", []string{"0", "1"}[i]).Document()
				wantShape(t, sharer, map[string]bson.Type{
					"ts": bson.TypeObjectID, "process": bson.TypeString, "who": bson.TypeString,
					"why": bson.TypeString, "takeoverMS": bson.TypeInt64, "when": bson.TypeDateTime,
					"fence": bson.TypeInt64,
				})
				wantValues(t, sharer, map[string]any{"ts": g.Session(), "fence": g.Fence()})
			}
			wantReleased(t, one)
			w.wantSeen(t, name, two, b.Process(), "reads as well")
			wantReleased(t, two)
			wantValues(t, w.document(t, catalog.LocksCollection, name), map[string]any{"state": int32(0)})
		}
	})
}

func rawValue(t testing.TB, v any) bson.RawValue {
	t.Helper()
	typ, data, err := bson.MarshalValue(v)
	assert.Must(t, err)
	return bson.RawValue{Type: typ, Value: data}
}
