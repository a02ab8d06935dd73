package catalogtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
	"mongodlm/internal/test/assert"
)

// oddCases test lock documents with unusual fields. All operations must agree whether a document is
// valid:
//   - A malformed document is changed only by a release of its holder.
//   - Most operations on a malformed document return an error that names the malformed
//     field. Acquire and Leave return another error. Held and HeldOrFree leave the lock
//     out.
//   - In a valid document, every session that enters can also leave.
var oddCases = []testCase{
	{"State", func(b *bench) { b.odd(oddStates()) }},
	{"FenceAndRev", func(b *bench) { b.odd(oddCounters()) }},
	{"Holder", func(b *bench) { b.odd(oddHolders()) }},
	{"Waiters", func(b *bench) { b.odd(oddWaiters()) }},
	{"Sharers", func(b *bench) { b.odd(oddSharers()) }},
	{"Informational", func(b *bench) { b.odd(oddInformation()) }},
	{"RevDamagedWhileHeld_ReleaseFrees", func(b *bench) {
		for i, rev := range []any{"x", nil, bson.A{int64(1)}, int64(math.MaxInt64), 7.5, int64(-3)} {
			g := request(label(i), alice)
			b.acquire(g)
			b.rewrite(g.Name, field("rev", rev))
			if err := b.release(g.Session); err != nil {
				b.Errorf("rev %v: release: %v", rev, err)
			}
			next := request(g.Name, bob)
			if _, err := On(b.Catalog).Enter(b.ctx, next, catalog.Try); err != nil {
				b.Errorf("rev %v, released: enter: %v", rev, err)
			}
			if err := b.release(next.Session); err != nil {
				b.Errorf("rev %v, released: release: %v", rev, err)
			}
		}
	}},
}

// An oddity is a set of unusual fields of a lock document.
type oddity struct {
	fields []bson.E
	// The field free names the malformed field if the lock is free. The field held names it if the
	// lock is held. An empty name means that the document is valid.
	free, held string
	// sets is true if fields contains the state. In this case, held is ignored.
	sets bool
}

// OddFields returns sets of unusual fields. Most of them make a lock document malformed.
func OddFields() (sets []bson.D) {
	for _, o := range slices.Concat(
		oddStates(), oddCounters(), oddHolders(), oddWaiters(), oddSharers(), oddInformation(),
	) {
		sets = append(sets, o.fields)
	}
	return sets
}

func oddly(free, held string, fields ...bson.E) oddity {
	return oddity{fields: fields, free: free, held: held}
}

func oddStates() []oddity {
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

// oddHolderTS is the session of the holder in every odd document.
var oddHolderTS = bson.ObjectID{0: 0x4e, 11: 0x01}

func oddSharers() []oddity {
	r := catalog.Request{Session: catalog.Session{TS: oddHolderTS}, Process: alice}
	first := with(sharing(r, 7), field("when", bson.DateTime(5)))
	second := with(first, field("ts", historicalTS))
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
		"ts": {nil, bson.NilObjectID, bson.A{oddHolderTS}}, "process": {nil, "", int32(5)},
	} {
		for _, v := range values {
			at := "sharers.0." + key
			list = append(list, oddly(at, at, field("sharers", bson.A{with(first, field(key, v))}),
				field("mode", "shared")))
		}
	}
	// In these documents, the session that holds the lock is also in the queue.
	w := with(plantedWaiter(request("x", bob)), field("ts", oddHolderTS))
	list = append(list, oddly("", "waiters.0.ts", field("waiters", bson.A{w})),
		oddly("", "waiters.0.ts", both("shared",
			field("waiters", bson.A{with(w, field("ts", historicalTS))}))...))
	return list
}

func (b *bench) odd(list []oddity) {
	b.Helper()
	for i, o := range list {
		for _, state := range []int32{0, 1} {
			bad := o.free
			doc := bson.D{field("state", state), field("process", alice), field("ts", oddHolderTS),
				field("fence", planted), field("rev", int64(3))}
			if state == 1 {
				bad = o.held
			}
			if o.sets {
				if bad = o.free; state == 1 {
					continue
				}
			}
			b.oddDocument(fmt.Sprint(label(i), " ", state), with(doc, o.fields...), bad)
		}
	}
}

// oddDocument tests one document. The argument bad is the name of the malformed field, or empty if
// the document is valid.
func (b *bench) oddDocument(name string, doc bson.D, bad string) {
	b.Helper()
	doc = append(bson.D{field("_id", name)}, doc...)
	if b.storesNo(doc) {
		return
	}
	b.insert("locks", doc)
	raw := b.document("locks", name)
	defer func() {
		if b.Failed() {
			b.Logf("%s is %v", name, raw)
		}
	}()
	l, problem := catalog.ParseLock(raw)
	if (problem == nil) != (bad == "") || problem != nil && problem.Field != bad {
		b.Errorf("%s: read as %+v, want malformed %q", name, problem, bad)
		return
	}
	if problem != nil {
		b.refusedByAll(name, bad)
		b.freedByItsHolder(name, raw)
		return
	}
	r := request(name+" valid", bob)
	for _, way := range ways(l, r) {
		b.oddLife(name, with(doc, field("_id", r.Name)), way, r)
	}
	assert.Must(b, b.Delete(b.ctx, "locks", name))
}

// storesNo reports whether the store rejects a document. FerretDB v1 closes the connection when it
// receives a Decimal128, a NaN, or an array in an array.
func (b *bench) storesNo(doc bson.D) bool {
	b.Helper()
	return slices.ContainsFunc(doc, func(e bson.E) bool { return unusual(e.Value, false) }) &&
		assert.Value(b.Catalog.Hello(b.ctx))(b).Kind == catalog.FerretDB
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

// refusedByAll checks that no operation changes a malformed document. Most operations must return
// an error that names the malformed field. Acquire must return ErrNotFree. A release by a session
// that is not in the document must return ErrNoMatch. Held and HeldOrFree must leave the lock out.
func (b *bench) refusedByAll(name, bad string) {
	b.Helper()
	s := catalog.Session{Name: name, TS: oddHolderTS}
	mine, other := request(name, alice), request(name, bob)
	mine.TS = oddHolderTS
	tries := map[string]func() error{
		"Read":      func() error { return assert.Err(b.Catalog.Read(b.ctx, name)) },
		"Snapshot":  func() error { return asError(b.snapshot(name).LockErr) },
		"Snapshots": func() error { return asError(b.snapshots(name)[name].LockErr) },
		"List":      func() error { return b.listed(name) },
		"Transact": func() error {
			return b.Catalog.Transact(b.ctx, s, func(context.Context) error { return nil })
		},
	}
	for _, t := range []catalog.Transition{
		transition.Enter{Request: other, How: catalog.Queue},
		transition.Enter{Request: other, How: catalog.Try}, transition.Confirm{Request: mine},
		transition.SeedFence{Session: s, AtLeast: 1 << 41}, transition.Evict{Holder: dead(mine)},
		transition.GrantNext{Name: name}, transition.Break{Session: s, Fence: planted},
		transition.PutFirst{Session: s, To: other.TS}, transition.RequestYield{Name: name},
	} {
		tries[fmt.Sprintf("%T %+v", t, t)] = func() error {
			_, _, err := b.Catalog.Apply(b.ctx, t)
			return err
		}
	}
	b.wantUntouched("locks", name, func() {
		for way, try := range tries {
			err := try()
			var found *catalog.MalformedError
			switch {
			case errors.Is(err, catalog.ErrNoTransactions):
			case !errors.As(err, &found):
				b.Errorf("%s: %s: %v, want a *MalformedError", name, way, err)
			case found.Collection != "locks" || found.ID != name || found.Field != bad:
				b.Errorf("%s: %s: %v, want field %q", name, way, err, bad)
			}
		}
		_, err := On(b.Catalog).Acquire(b.ctx, other)
		b.wantErr(err, catalog.ErrNotFree) // Acquire sends one command, which does not return the document
		b.wantErr(b.release(other.Session), catalog.ErrNoMatch)
		grants, free := b.heldOrFree(alice, name)
		if len(grants)+len(free) > 0 {
			b.Errorf("%s: holds %v, free %v", name, grants, free)
		}
		b.omitted(name)
	})
}

func (b *bench) omitted(name string) {
	b.Helper()
	held := assert.Value(b.Catalog.Held(b.ctx, alice))(b)
	for _, s := range held {
		if s.Name == name {
			b.Errorf("%s: Held returned it: %+v", name, s)
		}
	}
	for row, err := range b.Catalog.List(b.ctx, true) {
		if err == nil && row.Lock.Name == name {
			b.Errorf("%s: List with waited returned it: %+v", name, row)
		}
	}
}

// asError converts a nil pointer to a nil error.
func asError(bad *catalog.MalformedError) error {
	if bad == nil {
		return nil
	}
	return bad
}

func (b *bench) listed(name string) error {
	for _, err := range b.Catalog.List(b.ctx, false) {
		var bad *catalog.MalformedError
		if errors.As(err, &bad) && bad.ID == name {
			return err
		}
		if err != nil && bad == nil {
			return err
		}
	}
	return nil
}

// freedByItsHolder checks that the holder can release a lock with a malformed document. Then it
// deletes the document.
func (b *bench) freedByItsHolder(name string, raw bson.Raw) {
	b.Helper()
	state, isNumber := raw.Lookup("state").AsInt64OK()
	ts, isSession := raw.Lookup("ts").ObjectIDOK()
	decimal := raw.Lookup("state").Type == bson.TypeDouble
	if isNumber && !decimal && state > 0 && isSession && ts == oddHolderTS {
		want := int64(0)
		mode, _ := raw.Lookup("mode").StringValueOK()
		list, _ := raw.Lookup("sharers").ArrayOK()
		values, _ := list.Values()
		for i, v := range values {
			sharer, _ := v.DocumentOK()
			other, _ := sharer.Lookup("ts").ObjectIDOK()
			if !other.IsZero() && other != ts && (i > 0 || mode != "") {
				want = 1 // another session holds the lock
			}
		}
		if list == nil && raw.Lookup("sharers").Type <= bson.TypeNull && mode != "" ||
			list != nil && len(values) == 0 && mode != "" {
			b.notFreed(name, ts)
			return
		}
		if err := b.release(catalog.Session{Name: name, TS: ts}); err != nil {
			b.Errorf("%s: release by the holder: %v", name, err)
		} else if left, _ := b.document("locks", name).Lookup("state").AsInt64OK(); left != want {
			b.Errorf("%s: state after the release by the holder: %d, want %d", name, left, want)
		}
	}
	assert.Must(b, b.Delete(b.ctx, "locks", name))
}

// notFreed checks that a release does not free a lock with unknown holders. Then it deletes the
// document.
func (b *bench) notFreed(name string, ts bson.ObjectID) {
	b.Helper()
	b.wantUntouched("locks", name, func() {
		b.wantErr(b.release(catalog.Session{Name: name, TS: ts}), catalog.ErrMalformed)
	})
	assert.Must(b, b.Delete(b.ctx, "locks", name))
}

func ways(l catalog.Lock, r catalog.Request) []catalog.Transition {
	plain := transition.Enter{Request: r, How: catalog.TryPlain}
	if r.Limit = l.Limit; r.Limit > 0 {
		r.Mode = catalog.Permit
	}
	all := []catalog.Transition{
		plain, transition.Enter{Request: r, How: catalog.Queue},
		transition.Enter{Request: r, How: catalog.Try},
	}
	if l.Held {
		from := HolderOf(l)
		from.Name = r.Name
		all = append(all, transition.Evict{Holder: from})
	}
	return all
}

// oddLife applies one transition. If the session of the request then holds the lock or waits for
// it, the session must be able to leave.
func (b *bench) oddLife(name string, doc bson.D, way catalog.Transition, r catalog.Request) {
	b.Helper()
	b.insert("locks", doc)
	_, _, err := b.Catalog.Apply(b.ctx, way)
	_, enters := way.(transition.Enter)
	if err != nil && !errors.Is(err, catalog.ErrNotFree) && !errors.Is(err, catalog.ErrNoMatch) {
		b.Errorf("%s: %T: %v", name, way, err)
	}
	l := b.snapshot(r.Name)
	if bad := l.LockErr; bad != nil { // the eviction raised the fence or the rev to its maximum
		if enters || bad.Field != "fence" && bad.Field != "rev" {
			b.Errorf("%s: after %T: %v", name, way, bad)
		}
		assert.Must(b, b.Delete(b.ctx, "locks", r.Name))
		return
	}
	_, holds := l.Lock.HeldBy(r.TS)
	_, waits := l.Lock.WaitedBy(r.TS)
	switch {
	case holds || waits:
		if err := b.release(r.Session); err != nil {
			b.Errorf("%s: %T, then release: %v", name, way, err)
		}
	case enters && err == nil:
		b.Errorf("%s: %T without an effect: %+v", name, way, l.Lock)
	}
	assert.Must(b, b.Delete(b.ctx, "locks", r.Name))
}
