package catalogtest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// oddCases test lock documents with unusual fields. All reads agree whether such a document is
// valid, and which field is malformed. Each transition has the result that package transition
// computes. On a malformed document, every transition fails, except that its holder can leave.
var oddCases = []testCase{
	{"State", func(b *bench) { b.odd(oddStates()) }},
	{"FenceAndRev", func(b *bench) { b.odd(oddCounters()) }},
	{"Holder", func(b *bench) { b.odd(oddHolders()) }},
	{"Waiters", func(b *bench) { b.odd(oddWaiters()) }},
	{"Sharers", func(b *bench) { b.odd(oddSharers()) }},
	{"Informational", func(b *bench) { b.odd(oddInformation()) }},
}

// An oddity is a set of unusual fields of a lock document.
type oddity struct {
	fields []bson.E
	// The field free names the malformed field if the lock is free. The field held names it if the
	// lock is held. An empty name means that the document is valid.
	free, held string
	// sets is true if fields contains the state. Then the value of free also applies to a held
	// lock.
	sets bool
}

// OddDocuments returns lock documents with unusual fields. Most of them are malformed. Their _id is
// x.
func OddDocuments() (docs []bson.D) {
	for _, o := range slices.Concat(
		oddStates(), oddCounters(), oddHolders(), oddWaiters(), oddSharers(), oddInformation(),
	) {
		for _, state := range []int32{0, 1} {
			docs = append(docs, with(odd(state), o.fields...))
		}
	}
	return docs
}

func oddly(free, held string, fields ...bson.E) oddity {
	return oddity{fields: fields, free: free, held: held}
}

func oddStates() []oddity { // F1, F2
	var list []oddity
	add := func(bad string, values ...any) {
		for _, v := range values {
			list = append(list, oddity{fields: []bson.E{field("state", v)}, free: bad, sets: true})
		}
	}
	zero, _ := bson.ParseDecimal128("0")
	one, _ := bson.ParseDecimal128("1")
	add("", int64(0), 0.0, math.Copysign(0, -1), int64(1), 1.0, int32(2), 2.0, int32(7))
	add("state", zero, one, math.NaN(), math.Inf(1), 0.5, 1.5, float64(1<<60), int32(-1), nil, true,
		false, "0", "1", bson.A{}, bson.A{int32(0)}, bson.A{int32(1)}, bson.D{}, bson.DateTime(0))
	return list
}

func oddCounters() (list []oddity) {
	seven, _ := bson.ParseDecimal128("7")
	for _, key := range []string{"fence", "rev"} {
		add := func(free, held string, values ...any) {
			for _, v := range values {
				list = append(list, oddly(free, held, field(key, v)))
			}
		}
		add("", "", int32(0), int32(7), int64(catalog.MaxCount))
		add(key, "", int64(catalog.MaxCount)+1, int64(catalog.MaxCountHeld)-1)
		add(key, key, int64(math.MaxInt64), int64(catalog.MaxCountHeld)+1, int64(-1), int32(-7), 7.0,
			7.5, math.NaN(), "7", "", nil, true, seven, bson.A{}, bson.A{int64(7)}, bson.D{},
			bson.DateTime(7))
	}
	return list
}

func oddHolders() (list []oddity) {
	for _, ts := range []any{
		nil, bson.NilObjectID, historicalTS.Hex(), int32(5), bson.A{historicalTS}, bson.D{},
	} {
		list = append(list, oddly("", "ts", field("ts", ts)))
	}
	for _, process := range []any{int32(5), bson.A{alice}, bson.D{}} {
		list = append(list, oddly("", "process", field("process", process)))
	}
	return append(list, oddly("", "", field("process", nil)), oddly("", "", field("process", "")))
}

func oddInformation() []oddity {
	list := []oddity{
		oddly("", "sharers", field("mode", "shared")),
		oddly("", "sharers", field("mode", "permit"), field("limit", "three")),
	}
	for _, f := range []bson.E{
		field("who", int32(5)), field("why", bson.A{"x"}), field("when", "yesterday"),
		field("takeoverMS", "long"), field("takeoverMS", bson.A{int64(5)}), field("grants", int32(5)),
		field("evidence", bson.D{}), field("mode", int32(5)), field("limit", int32(-3)),
	} {
		list = append(list, oddly("", "", f))
	}
	return list
}

func oddWaiters() []oddity {
	w, other := plantedWaiter(request("x", bob)), plantedWaiter(request("x", bob))
	list := []oddity{
		oddly("", "", field("waiters", nil)), oddly("", "", field("waiters", bson.A{})),
		oddly("", "", field("waiters", bson.A{w, other})),
	}
	add := func(at string, waiters any) {
		list = append(list, oddly("waiters"+at, "waiters"+at, field("waiters", waiters)))
	}
	for _, v := range []any{int32(0), "none", true, bson.D{}, bson.D{field("0", w)}, w} {
		add("", v)
	}
	for _, v := range []any{nil, int32(1), "x", bson.A{}, bson.A{w}} {
		add(".1", bson.A{w, v})
	}
	change := func(key string, values ...any) {
		for _, v := range values {
			add(".1."+key, bson.A{other, with(w, field(key, v))})
		}
	}
	change("ts", nil, "x", bson.NilObjectID, bson.A{historicalTS}, bson.D{})
	change("process", nil, "", int32(5), bson.A{"p"})
	change("mode", "odd", "Shared", int32(1), bson.A{"shared"}, true)
	permit := with(w, field("mode", "permit"))
	add(".0.limit", bson.A{without(permit, "limit")})
	for _, v := range []any{
		nil, int32(0), int32(-3), int64(1) << 40, "3", 2.5, math.NaN(), bson.A{int32(3)}, true,
	} {
		add(".0.limit", bson.A{with(permit, field("limit", v))})
	}
	add(".1.ts", bson.A{w, w})
	add(".0.ts", bson.A{without(w, "ts")})
	add(".0.process", bson.A{without(w, "process")})
	for _, fine := range []bson.D{
		without(w, "mode"), with(w, field("mode", nil)), with(w, field("limit", "x")),
		with(w, field("mode", "shared"), field("limit", int32(-1))), with(w, field("takeoverMS", "x")),
		with(permit, field("limit", 3.0)), with(permit, field("limit", int64(3))),
		without(w, "who", "why", "since"), with(w, field("since", "x"), field("holds", int32(1))),
	} {
		list = append(list, oddly("", "", field("waiters", bson.A{fine})))
	}
	return list
}

// otherTS is a session that is not the holder's.
var otherTS = bson.ObjectID{0: 0x4e, 11: 0x01}

func oddSharers() []oddity {
	r := catalog.Request{Session: catalog.Session{TS: historicalTS}, Process: alice}
	first := with(sharing(r, 7), field("when", bson.DateTime(5)))
	second := with(first, field("ts", otherTS))
	both := func(mode any, more ...bson.E) []bson.E {
		return append([]bson.E{field("sharers", bson.A{first, second}), field("mode", mode)}, more...)
	}
	list := []oddity{
		oddly("", "", both("shared")...), oddly("", "", both("permit", field("limit", int32(3)))...),
		oddly("", "", both("permit", field("limit", int32(1)))...),
		oddly("", "sharers", field("sharers", bson.A{second})), oddly("", "", field("sharers", nil)),
		oddly("", "", field("sharers", bson.A{second}), field("mode", "shared"), field("state", int32(2))),
		oddly("", "", field("mode", "permit"), field("state", int32(2))),
		oddly("", "sharers", field("sharers", bson.A{second, first}), field("mode", "shared")),
		oddly("", "sharers", field("sharers", bson.A{}), field("mode", "shared")),
		oddly("", "sharers", field("sharers", nil), field("mode", "permit"), field("limit", int32(2))),
		oddly("", "mode", both(nil)...), oddly("", "mode", both("odd")...),
		oddly("", "mode", both(bson.A{"shared"})...), oddly("", "mode", both("")...),
		oddly("", "limit", both("permit")...),
		oddly("", "limit", both("permit", field("limit", int32(0)))...),
		oddly("", "limit", both("permit", field("limit", int32(-1)))...),
		oddly("", "limit", both("permit", field("limit", "3"))...),
		oddly("", "limit", both("permit", field("limit", bson.A{int32(3)}))...),
		oddly("", "sharers.1.ts", field("sharers", bson.A{first, first}), field("mode", "shared")),
		oddly("sharers.1", "sharers.1", field("sharers", bson.A{first, nil})),
	}
	for _, v := range []any{int32(0), "none", bson.D{}, bson.D{field("0", first)}} {
		list = append(list, oddly("sharers", "sharers", field("sharers", v)))
	}
	for key, values := range map[string][]any{
		"ts": {nil, bson.NilObjectID, bson.A{historicalTS}}, "process": {nil, "", int32(5)},
	} {
		for _, v := range values {
			at := "sharers.0." + key
			list = append(list, oddly(at, at, field("sharers", bson.A{with(first, field(key, v))}),
				field("mode", "shared")))
		}
	}
	// In these documents, the session that holds the lock is also in the queue.
	w := with(plantedWaiter(request("x", bob)), field("ts", historicalTS))
	list = append(list, oddly("", "waiters.0.ts", field("waiters", bson.A{w})),
		oddly("", "waiters.0.ts", both("shared",
			field("waiters", bson.A{with(w, field("ts", otherTS))}))...))
	return list
}

// oddLives are sequences of steps, see the type life. Session 99 is the holder. The first life must
// not change a malformed document.
var oddLives = []string{
	"a1 x1? x1 p1/3 y g f99/1 n99/7 c99 r99/1 e99 b99/3 -9", "a1 -1", "x1? -1", "x1 -1", "p1/3 -1", "e99",
}

// slowOddLives replace oddLives on the embedded server.
var slowOddLives = []string{"a1 r99/1 -9", "x1 -1", "e99"}

func (b *bench) odd(list []oddity) {
	b.Helper()
	lives := oddLives
	if b.embedded() {
		lives = slowOddLives
	}
	for i, o := range list {
		b.oddDocument(fmt.Sprint("$", label(i), " free"), with(odd(0), o.fields...), o.free, lives)
		if !o.sets {
			b.oddDocument(fmt.Sprint("$", label(i), " held"), with(odd(1), o.fields...), o.held, lives)
		}
	}
}

func odd(state int32) bson.D {
	return bson.D{field("_id", "x"), field("state", state), field("process", alice),
		field("ts", historicalTS), field("fence", planted), field("rev", int64(3))}
}

// oddDocument tests one document. The argument bad is the name of the malformed field, or empty if
// the document is valid.
func (b *bench) oddDocument(name string, doc bson.D, bad string, lives []string) {
	b.Helper()
	if b.storesNo(doc) {
		return
	}
	doc[0].Value = name
	defer func() {
		if b.Failed() {
			b.Logf("the document was %v", doc)
		}
	}()
	if bad != "" {
		lives = lives[:1]
	}
	for _, steps := range lives {
		b.insert("locks", doc)
		raw := b.document("locks", name)
		_, problem := catalog.ParseLock(raw)
		if (problem == nil) != (bad == "") || problem != nil && problem.Field != bad {
			b.Fatalf("read as %+v, want malformed %q", problem, bad)
		}
		for step := range strings.FieldsSeq(steps) {
			before := raw
			if raw = b.step(name, before, step+":any", false); bad != "" && !slices.Equal(before, raw) {
				b.Errorf("step %s has changed the malformed document: %v", step, raw)
			}
		}
		if bad != "" {
			b.malformed(name, bad)
			b.step(name, raw, "-99:any", false)
		}
		assert.Must(b, b.Delete(b.ctx, "locks", name))
	}
}

// storesNo reports whether the store rejects a document. FerretDB v1 closes the connection when it
// receives a Decimal128, a NaN, or an array in an array.
func (b *bench) storesNo(doc bson.D) bool {
	b.Helper()
	return slices.ContainsFunc(doc, func(e bson.E) bool { return unusual(e.Value, false) }) &&
		b.embedded()
}

func unusual(v any, inArray bool) bool {
	switch v := v.(type) {
	case bson.Decimal128:
		return true
	case float64:
		return v-v != 0
	case bson.D:
		return slices.ContainsFunc(v, func(e bson.E) bool { return unusual(e.Value, false) })
	case bson.A:
		return inArray || slices.ContainsFunc(v, func(one any) bool { return unusual(one, true) })
	}
	return false
}

// malformed checks that all reads of a malformed document agree. The collection must contain no
// other document.
func (b *bench) malformed(name, bad string) {
	b.Helper()
	want := func(err error) {
		b.Helper()
		b.wantMalformed(err, "locks", name, bad)
	}
	want(assert.Err(b.Catalog.Read(b.ctx, name)))
	if snapshot := b.snapshot(name); snapshot.LockErr == nil {
		b.Errorf("snapshot %+v", snapshot)
	} else {
		want(snapshot.LockErr)
	}
	at := name + " " + bad
	rows, listed := b.rows(false)
	waitedFor, waited := b.rows(true)
	grants, free := b.heldOrFree(alice, name)
	if len(rows)+len(waitedFor)+len(grants)+len(free) > 0 || !slices.Equal(listed, []string{at}) ||
		len(waited) > 0 && !slices.Equal(waited, listed) {
		b.Errorf("rows %+v and %+v, malformed %q and %q, holds %v, free %v", rows, waitedFor, listed,
			waited, grants, free)
	}
	b.wantHeld(alice, nil)
}
