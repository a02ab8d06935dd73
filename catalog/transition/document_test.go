package transition_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

var noon = time.UnixMilli(1_790_000_000_000).UTC()

func session(n int) bson.ObjectID { return bson.ObjectID{0: 0x40, 10: byte(n >> 8), 11: byte(n)} }

func number(ts bson.ObjectID) int { return int(ts[10])<<8 | int(ts[11]) }

func process(n int) string { return fmt.Sprint("process-", n) }

// request returns a request of session n. A limit above zero makes it a request for a permit.
func request(n int, mode catalog.Mode, limit int32) catalog.Request {
	return catalog.Request{
		Session: catalog.Session{Name: "balancer", TS: session(n)}, Process: process(n),
		Who: fmt.Sprint("who-", n), Why: fmt.Sprint("why-", n), Takeover: time.Minute,
		Mode: mode, Limit: limit,
	}
}

func parse(t *rapid.T, doc bson.D) catalog.Lock {
	t.Helper()
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Fatalf("marshal %v: %v", doc, err)
	}
	l, bad := catalog.ParseLock(raw)
	if bad != nil {
		t.Fatalf("parse %v: %v", doc, bad)
	}
	return l
}

// short describes the holders and waiters of a lock, for example "x1 | s2 p3/2".
func short(l catalog.Lock) string {
	var parts []string
	write := func(participants []catalog.Participant) {
		for _, p := range participants {
			letter, limit := "x", ""
			switch p.Mode {
			case catalog.Shared:
				letter = "s"
			case catalog.Permit:
				letter, limit = "p", fmt.Sprint("/", p.Limit)
			}
			parts = append(parts, fmt.Sprint(letter, number(p.TS), limit))
		}
	}
	write(l.Holders())
	parts = append(parts, "|")
	write(l.Waiters)
	return strings.Join(parts, " ")
}

// A transition may write these fields.
var ours = []string{
	"evidence", "fence", "grants", "limit", "mode", "process", "sharers", "state", "takeoverMS", "ts",
	"waiters", "when", "who", "why",
}

// The test fails if the change has unsorted, repeated or unknown fields.
func apply(t *rapid.T, doc bson.D, c catalog.Change) bson.D {
	t.Helper()
	sorted := func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(c.Set, sorted) || !slices.IsSorted(c.Unset) {
		t.Errorf("not in the order of names: %v, %v", c.Set, c.Unset)
	}
	doc = slices.Clone(doc)
	seen := map[string]bool{}
	touch := func(key string) int {
		if seen[key] || !slices.Contains(ours, key) {
			t.Errorf("field %q is written twice, or is not ours: %v, %v", key, c.Set, c.Unset)
		}
		seen[key] = true
		return slices.IndexFunc(doc, func(e bson.E) bool { return e.Key == key })
	}
	for _, e := range c.Set {
		if at := touch(e.Key); at < 0 {
			doc = append(doc, e)
		} else {
			doc[at] = e
		}
	}
	for _, key := range c.Unset {
		if at := touch(key); at >= 0 {
			doc = slices.Delete(doc, at, at+1)
		}
	}
	return doc
}

func put(doc bson.D, key string, v any) bson.D {
	doc = slices.DeleteFunc(slices.Clone(doc), func(e bson.E) bool { return e.Key == key })
	return append(doc, bson.E{Key: key, Value: v})
}

func leaving(l catalog.Lock, ts bson.ObjectID, now time.Time, why string) (catalog.Change, error) {
	s := catalog.Session{Name: l.Name, TS: ts}
	if why == "" {
		return transition.Leave{Session: s}.Next(l, now)
	}
	dead := catalog.Holder{Session: s}
	for _, p := range append(l.Holders(), l.Waiters...) {
		if p.TS == ts {
			dead.Process = p.Process
		}
	}
	return transition.Evict{Holder: dead, Evidence: why}.Next(l, now)
}
