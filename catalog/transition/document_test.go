package transition_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// planted is a fence above transition.Seeded. A grant raises it by 1 and does not take the fence
// from the clock.
const planted = int64(1) << 40

var noon = time.UnixMilli(1_790_000_000_000).UTC()

func session(n int) bson.ObjectID { return bson.ObjectID{0: 0x40, 10: byte(n >> 8), 11: byte(n)} }

func number(ts bson.ObjectID) int { return int(ts[10])<<8 | int(ts[11]) }

func process(n int) string { return fmt.Sprint("process-", n) }

// entrant parses a short form of a request: a letter for the mode, and the number of the session.
// Examples: x1 (exclusive), s2 (shared), p3/2 (one of 2 permits).
func entrant(f failer, text string) catalog.Request {
	f.Helper()
	digits, limit, permit := strings.Cut(text[1:], "/")
	n, err := strconv.Atoi(digits)
	if err != nil {
		f.Fatalf("%q: %v", text, err)
	}
	r := catalog.Request{
		Session: catalog.Session{Name: "balancer", TS: session(n)}, Process: process(n),
		Who: fmt.Sprint("who-", n), Why: fmt.Sprint("why-", n), Takeover: time.Minute,
	}
	switch {
	case text[0] == 's':
		r.Mode = catalog.Shared
	case permit:
		most, err := strconv.ParseInt(limit, 10, 32)
		if err != nil {
			f.Fatalf("%q: %v", text, err)
		}
		r.Mode, r.Limit = catalog.Permit, int32(most)
	}
	return r
}

// document builds a lock document from a short form: the holders, a bar, the waiters. The holder f9
// is foreign: its state is 2, and it has no fields of this module.
func document(f failer, text string) bson.D {
	f.Helper()
	left, right, _ := strings.Cut(text, "|")
	doc := bson.D{{Key: "_id", Value: "balancer"}, {Key: "state", Value: int32(0)}}
	set := func(key string, value any) { doc = append(doc, bson.E{Key: key, Value: value}) }
	fence, sharers := planted, bson.A{}
	for i, one := range strings.Fields(left) {
		g := entrant(f, one)
		if i == 0 {
			doc[1].Value = int32(1)
			set("process", g.Process)
			set("ts", g.TS)
			if one[0] == 'f' {
				doc[1].Value = int32(2)
				continue
			}
			set("who", g.Who)
			set("why", g.Why)
			set("when", bson.DateTime(5))
			set("takeoverMS", g.Takeover.Milliseconds())
			if g.Mode != catalog.Exclusive {
				set("mode", string(g.Mode))
			}
			if g.Limit > 0 {
				set("limit", g.Limit)
			}
		}
		fence++
		sharers = append(sharers, bson.D{
			{Key: "ts", Value: g.TS}, {Key: "process", Value: g.Process},
			{Key: "when", Value: bson.DateTime(5)}, {Key: "fence", Value: fence},
		})
	}
	waiters := bson.A{}
	for i, one := range strings.Fields(right) {
		g := entrant(f, one)
		waiters = append(waiters, transition.Entry(g, noon))
		if doc[1].Value == int32(0) && i == 0 && g.Limit > 0 {
			set("limit", g.Limit)
		}
	}
	set("fence", fence)
	if slices.ContainsFunc(doc, func(e bson.E) bool { return e.Key == "mode" }) {
		set("sharers", sharers)
	}
	if len(waiters) > 0 {
		set("waiters", waiters)
	}
	return doc
}

func parse(f failer, doc bson.D) catalog.Lock {
	f.Helper()
	raw, err := bson.Marshal(doc)
	if err != nil {
		f.Fatalf("marshal %v: %v", doc, err)
	}
	l, bad := catalog.ParseLock(raw)
	if bad != nil {
		f.Fatalf("parse %v: %v", doc, bad)
	}
	return l
}

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
func apply(f failer, doc bson.D, c catalog.Change) bson.D {
	f.Helper()
	sorted := func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(c.Set, sorted) || !slices.IsSorted(c.Unset) {
		f.Errorf("not in the order of names: %v, %v", c.Set, c.Unset)
	}
	doc = slices.Clone(doc)
	seen := map[string]bool{}
	touch := func(key string) int {
		if seen[key] || !slices.Contains(ours, key) {
			f.Errorf("field %q is written twice, or is not ours: %v, %v", key, c.Set, c.Unset)
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

func value(doc bson.D, key string) any {
	for _, e := range doc {
		if e.Key == key {
			return e.Value
		}
	}
	return nil
}

func put(doc bson.D, key string, v any) bson.D {
	doc = slices.DeleteFunc(slices.Clone(doc), func(e bson.E) bool { return e.Key == key })
	return append(doc, bson.E{Key: key, Value: v})
}

func entering(l catalog.Lock, r catalog.Request, how catalog.EnterMode, now time.Time) (
	c catalog.Change, changed bool, err error,
) {
	c, err = transition.Enter{Request: r, How: how}.Next(l, now)
	return c, err == nil && !c.Nothing(), err
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

func granting(l catalog.Lock, now time.Time) (catalog.Change, error) {
	return transition.GrantNext{Name: l.Name}.Next(l, now)
}
