package catalog_test

import (
	"reflect"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// FuzzParse feeds raw bytes to both parsers (F20). Whatever they are: no panic, nothing out of a
// malformed document, free only for a numeric zero, and held only with a session.
func FuzzParse(f *testing.F) {
	for _, doc := range []bson.D{
		lock("state", int32(0)), lock("state", 2.0), lock("state", nil), lock("state", "0"),
		lock("ts", nil), lock("ts", ts.Hex()), lock("fence", 1.5), lock("_id", int32(5)),
		lock("x", bson.D{field("y", bson.A{1, "z"})}), ping("seq", "x"), ping("ping", nil),
		ping("condemned", true), lock("waiters", bson.A{party("x", 1), party("ts", ts)}),
		lock("waiters", int32(5)), lock("waiters", bson.A{bson.D{}, 7}), lock("waiters", nil),
		lock("sharers", bson.A{party("process", nil)}), lock("grants", catalog.GrantLine(ts, 7, "p")),
		replace(replace(lock("mode", "permit"), "limit", int32(2)), "sharers", bson.A{party("ts", ts)}),
		replace(replace(lock("state", int32(0)), "limit", 2.0), "waiters", bson.A{party("mode", "x")}),
		lock("grants", "x 1\n"+ts.Hex()+" 9 p"), lock("limit", int64(1)<<40),
	} {
		raw := marshal(f, doc)
		f.Add([]byte(raw))
		f.Add([]byte(raw[:len(raw)/2]))
	}
	f.Add([]byte(nil))
	f.Add([]byte{5, 0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		l, bad := catalog.ParseLock(data)
		switch {
		case bad != nil:
			if !reflect.DeepEqual(l, catalog.Lock{}) {
				t.Errorf("a malformed document gave %+v", l)
			}
			if bad.Error() == "" || bad.Field == "" {
				t.Errorf("no text or field: %+v", bad)
			}
		case !l.Held && !numericZero(data):
			t.Errorf("free, but state is no numeric zero: %v", bson.Raw(data))
		case l.Held && (l.TS.IsZero() || l.State <= 0 || l.Fence < 0):
			t.Errorf("held without a session: %+v", l)
		}
		wantOrderly(t, l)
		p, bad := catalog.ParsePing(data)
		if bad != nil && p != (catalog.Ping{}) {
			t.Errorf("a malformed document gave %+v", p)
		}
	})
}

// wantOrderly checks what everybody who reads a queue relies on.
func wantOrderly(t *testing.T, l catalog.Lock) {
	t.Helper()
	for _, p := range slices.Concat(l.Sharers, l.Waiters) {
		if p.TS.IsZero() || p.Process == "" || p.Limit < 0 || p.Takeover < 0 ||
			p.Mode != catalog.Exclusive && p.Mode != catalog.Shared && p.Mode != catalog.Permit {
			t.Errorf("a party without a session or process: %+v", p)
		}
	}
	shared := l.Mode == catalog.Shared || l.Mode == catalog.Permit
	if shared != (len(l.Sharers) > 0) || shared && (!l.Held || l.Sharers[0].TS != l.TS) ||
		l.Held != (len(l.Holders()) > 0) || l.Limit < 0 {
		t.Errorf("holders: %+v", l)
	}
	for _, a := range slices.Concat(l.Grants, l.GrantsOf(l.Process)) {
		if a.Name != l.Name {
			t.Errorf("grant %+v", a)
		}
	}
}

// numericZero reads the state in another way than the parser: through the driver's iteration.
func numericZero(data []byte) bool {
	elements, err := bson.Raw(data).Elements()
	if err != nil {
		return false
	}
	zero := false
	for _, e := range elements {
		if e.Key() != "state" {
			continue
		}
		v := e.Value()
		switch v.Type {
		case bson.TypeInt32, bson.TypeInt64:
			n, ok := v.AsInt64OK()
			zero = ok && n == 0
		case bson.TypeDouble:
			zero = v.Double() == 0
		default:
			zero = false
		}
	}
	return zero
}
