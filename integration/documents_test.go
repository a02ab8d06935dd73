package integration_test

import (
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
