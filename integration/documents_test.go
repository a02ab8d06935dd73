package integration_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
	"mongodlm/internal/test/assert"
)

// The documents are as section 4 of the design has them, field by field and type by type, so that
// whoever reads these collections, a mongos' shell script or MongoDB's own manager, finds what he
// knows.
func TestTryLock_FirstAcquisition_CreatesTheDocumentsAsDesigned(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, w *world) {
		m := w.start(t, nil)
		name, before := w.name("balancer"), w.now(t)
		g, err := w.try(t, m, name, distlock.Why("doing balance round"), distlock.Label("Balancer"))
		assert.Must(t, err)
		raw := w.document(t, catalog.LocksCollection, name)
		wantShape(t, raw, map[string]bson.Type{
			"_id": bson.TypeString, "state": bson.TypeInt32, "process": bson.TypeString,
			"who": bson.TypeString, "why": bson.TypeString, "when": bson.TypeDateTime,
			"ts": bson.TypeObjectID, "fence": bson.TypeInt64, "takeoverMS": bson.TypeInt64,
			"rev": bson.TypeInt64,
		})
		when := raw.Lookup("when").Time()
		want := map[string]any{
			"_id": name, "state": int32(1), "process": m.Process(), "why": "doing balance round",
			"ts": g.Session(), "fence": g.Fence(), "takeoverMS": m.Config().Takeover.Milliseconds(),
			"rev": int64(2), // the acquisition, and the raising of the first fence
		}
		wantValues(t, raw, want)
		if when.Before(before.Truncate(time.Millisecond)) || when.After(w.now(t)) {
			t.Errorf("when is %v, not the server's clock", when)
		}
		if g.Fence() != when.UnixMilli() { // F8: larger than that of a document deleted before
			t.Errorf("first fence: want the server's clock %d, got %d", when.UnixMilli(), g.Fence())
		}
		who := raw.Lookup("who").StringValue()
		if !strings.HasPrefix(who, m.Process()+":Balancer:") {
			t.Errorf("who: want process, label and a random part, got %q", who)
		}
		wantPing(t, w, m)
	})
}

func wantPing(t *testing.T, w *world, m *distlock.Manager) {
	t.Helper()
	before := w.now(t)
	first := w.document(t, catalog.PingsCollection, m.Process())
	wantShape(t, first, map[string]bson.Type{
		"_id": bson.TypeString, "ping": bson.TypeDateTime, "local": bson.TypeDateTime,
		"seq": bson.TypeInt64, "takeoverMS": bson.TypeInt64, "pingMS": bson.TypeInt64,
	})
	wantValues(t, first, map[string]any{
		"_id": m.Process(), "takeoverMS": m.Config().Takeover.Milliseconds(),
		"pingMS": m.Config().Ping.Milliseconds(),
	})
	eventually(t, 20*time.Second, "another ping by the server's clock, one more seq", func() bool {
		raw := w.document(t, catalog.PingsCollection, m.Process())
		return raw.Lookup("seq").Int64() > first.Lookup("seq").Int64() &&
			!raw.Lookup("ping").Time().Before(before.Truncate(time.Millisecond))
	})
	host, _, _ := strings.Cut(m.Process(), ":")
	if parts := strings.Split(m.Process(), ":"); len(parts) != 4 || host != m.Config().Host {
		t.Errorf("process id %q is not <host>:<pid>:<unix seconds>:<uuid>", m.Process())
	}
}

// wantShape checks that a document has exactly these fields, of these types.
func wantShape(t testing.TB, raw bson.Raw, want map[string]bson.Type) {
	t.Helper()
	elements := assert.Value(raw.Elements())(t)
	var got, wanted []string
	for _, e := range elements {
		got = append(got, fmt.Sprintf("%s %s", e.Key(), e.Value().Type))
	}
	for name, typ := range want {
		wanted = append(wanted, fmt.Sprintf("%s %s", name, typ))
	}
	slices.Sort(got)
	slices.Sort(wanted)
	assert.Slices(t, wanted, got, "shape of the document\nwant %q\ngot  %q")
}

// wantValues checks some fields of a document, types included.
func wantValues(t testing.TB, raw bson.Raw, want map[string]any) {
	t.Helper()
	for name, value := range want {
		typ, data, err := bson.MarshalValue(value)
		assert.Must(t, err)
		if wanted := (bson.RawValue{Type: typ, Value: data}); !wanted.Equal(raw.Lookup(name)) {
			t.Errorf("field %s\nwant %v\ngot  %v", name, wanted, raw.Lookup(name))
		}
	}
}

// A dead is the process of a holder that is planted: it will never ping again.
type dead struct {
	name    string // of the lock
	process string
}

// plantCondemned plants a lock that may be taken over at once: its holder pinged an hour ago, and
// was condemned. The lock comes first: a ping that no lock names may be pruned by anybody.
func (w *world) plantCondemned(t testing.TB) dead {
	t.Helper()
	d := dead{name: w.name("balancer"), process: w.name("dead:1:1700000000:x")}
	at := bson.NewDateTimeFromTime(w.now(t).Add(-time.Hour))
	w.plant(t, catalog.LocksCollection, bson.D{
		field("_id", d.name), field("state", int32(1)), field("process", d.process),
		field("who", d.process+":main:1"), field("why", "doing balance round"), field("when", at),
		field("ts", bson.NewObjectID()), field("fence", int64(1)<<40), field("rev", int64(1)),
	})
	w.plant(t, catalog.PingsCollection, bson.D{
		field("_id", d.process), field("ping", at), field("local", at), field("seq", int64(7)),
		field("pingMS", int64(50)), field("takeoverMS", int64(1000)),
		field("condemned", map[string]string{"by": "a contender that died"}),
	})
	return d
}

// release releases the guard of that name that was acquired last.
func (w *world) release(t testing.TB, name string) {
	t.Helper()
	w.mu.Lock()
	var last *distlock.TryGuard
	for _, g := range w.kept {
		if g != nil && g.Name() == name {
			last = g
		}
	}
	w.mu.Unlock()
	assert.Must(t, last.Release())
}

// wantGuard checks that a guard and the document agree.
func (w *world) wantGuard(t testing.TB, m *distlock.Manager, g *distlock.TryGuard, err error) {
	t.Helper()
	assert.Must(t, err)
	l := w.lock(t, g.Name())
	if !l.Held || l.TS != g.Session() || l.Fence != g.Fence() || l.Process != m.Process() {
		t.Errorf("the guard is %v, fence %d; the document shows %+v", g.Session(), g.Fence(), l)
	}
	assert.NoErr(t, errors.Join(g.Err(), g.Verify(t.Context()), g.Release()))
}

// wantNoGuard checks that an acquisition failed with an error that says what is known.
func wantNoGuard(t testing.TB, g *distlock.TryGuard, err error) {
	t.Helper()
	if g != nil || err == nil {
		t.Fatalf("a guard (%v) or no error: %v", g, err)
	}
	if !errors.Is(err, distlock.ErrOutcomeUnknown) && !errors.Is(err, distlock.ErrUnavailable) {
		t.Errorf("%v: want ErrOutcomeUnknown or ErrUnavailable", err)
	}
}

// wantFreed waits until nobody holds a lock.
func (w *world) wantFreed(t testing.TB, name string) {
	t.Helper()
	eventually(t, freeLimit, "the lock is free", func() bool {
		raw := w.document(t, catalog.LocksCollection, name)
		return raw == nil || !w.lock(t, name).Held
	})
}

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
		before := w.now(t).Truncate(time.Millisecond)
		first := w.queue(t, b, name, distlock.Why("wants it"))
		second := w.queue(t, c, name, distlock.Shared())
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
		one := raw.Lookup("waiters", "0").Document()
		wantShape(t, one, waiter)
		wantValues(t, one, map[string]any{
			"process": b.Process(), "mode": "", "why": "wants it",
			"takeoverMS": b.Config().Takeover.Milliseconds(),
		})
		if since := one.Lookup("since").Time(); since.Before(before) || since.After(w.now(t)) {
			t.Errorf("since is %v, not the server's clock", since)
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
		wantValues(t, raw, map[string]any{"state": int32(0), "process": c.Process(),
			"fence": last.Fence()})
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
