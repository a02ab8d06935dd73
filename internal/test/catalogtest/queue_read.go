package catalogtest

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

// wantPings checks that a read returned the pings of the processes in pinging, and no ping of the
// processes in silent.
func (b *bench) wantPings(
	what string, got map[string]catalog.PingState, pinging, silent []string,
) {
	b.Helper()
	want := slices.Sorted(slices.Values(slices.Concat(pinging, silent)))
	if names := slices.Sorted(maps.Keys(got)); len(want) > 0 && !slices.Equal(want, names) {
		b.Fatalf("%s: processes\nwant %q\ngot  %q", what, want, names)
	}
	for _, process := range pinging {
		if p := got[process].Ping; p == nil || p.Process != process || p.Seq != 1 {
			b.Errorf("%s: ping of %s: %+v", what, process, got[process])
		}
	}
	for _, process := range silent {
		if got[process] != (catalog.PingState{}) {
			b.Errorf("%s: ping of %s: %+v", what, process, got[process])
		}
	}
}

func (b *bench) snapshots(names ...string) map[string]catalog.Snapshot {
	b.Helper()
	snapshots, err := b.Catalog.Snapshots(b.ctx, names)
	assert.Must(b, err, "snapshots")
	return snapshots
}

// heldOrFree returns the grants of a process and the names of the free locks, both sorted.
func (b *bench) heldOrFree(process string, names ...string) ([]catalog.Grant, []string) {
	b.Helper()
	var grants []catalog.Grant
	var free []string
	locks, err := b.Catalog.HeldOrFree(b.ctx, process, names, nil)
	assert.Must(b, err, "held or free")
	for _, l := range locks {
		if grants = append(grants, l.GrantsOf(process)...); !l.Held {
			free = append(free, l.Name)
		}
	}
	slices.Sort(free)
	return byTS(grants), free
}

// byTS sorts grants by name and session.
func byTS(grants []catalog.Grant) []catalog.Grant {
	return slices.SortedFunc(slices.Values(grants), func(a, b catalog.Grant) int {
		return a.Session.Compare(b.Session)
	})
}

// rows lists all locks, or only those with waiters. It returns their snapshots, and the id and
// field of each malformed document.
func (b *bench) rows(waited bool) (rows []catalog.Snapshot, malformed []string) {
	b.Helper()
	for row, err := range b.Catalog.List(b.ctx, waited) {
		var bad *catalog.MalformedError
		switch {
		case errors.As(err, &bad):
			malformed = append(malformed, bad.ID+" "+bad.Field)
			if row.Lock != nil {
				b.Errorf("a malformed document has the lock %+v", row.Lock)
			}
		case err != nil:
			b.Fatal(err)
		default:
			rows = append(rows, row)
		}
	}
	return rows, malformed
}

var queueReadCases = []testCase{
	{"NoProcess_HasNoPing", func(b *bench) { // F5
		b.insert("lockpings", bson.D{field("_id", ""), field("ping", bson.DateTime(5))})
		b.insert("locks", held("balancer", ""))
		if snapshot := b.snapshot("balancer"); snapshot.Lock == nil || snapshot.Ping != nil {
			b.Errorf("want a lock without ping, got %+v", snapshot)
		}
	}},
	{"MalformedPing_IsInTheResult", func(b *bench) { // F15, F17
		for i, c := range []bson.E{
			field("ping", nil), field("ping", "now"), field("ping", 5.0),
			field("ping", bson.Timestamp{T: 7}), field("seq", "x"), field("seq", 1.5),
		} {
			process := label(i)
			b.insert("lockpings", with(
				bson.D{field("_id", process), field("ping", bson.DateTime(5))}, c))
			b.acquire(request(process, process))
			snapshot := b.snapshot(process)
			if snapshot.Lock == nil || snapshot.Ping != nil || snapshot.PingErr == nil {
				b.Errorf("%v: want PingErr, got %+v", c, snapshot)
				continue
			}
			b.wantMalformed(snapshot.PingErr, "lockpings", process, c.Key)
		}
	}},
	{"FieldsWithOurNames_DoNotConflict", func(b *bench) {
		doc := append(held("balancer", alice), field("now", "x"), field("pings", "y"),
			field("lock", bson.D{field("state", int32(0))}), field("ping", int32(1)))
		b.insert("locks", doc)
		p := b.ping(alice)
		snapshot := b.snapshot("balancer")
		if snapshot.Lock == nil || !snapshot.Lock.Held || snapshot.Ping == nil || *snapshot.Ping != p {
			b.Errorf("got %+v", snapshot)
		}
	}},
	{"Snapshots_SeveralNames_InOneRead", func(b *bench) {
		b.ping(process(0))
		b.ping(process(2))
		b.queued("held", 3)
		b.queued("$y.z", 1)
		b.insert("locks", free("free"))
		b.insert("locks", with(held("bad", alice), field("waiters", int32(5))))
		b.queued("not asked for", 2)
		snapshots := b.snapshots("held", "missing", "free", "bad", "$y.z")
		names := slices.Sorted(maps.Keys(snapshots))
		if want := []string{"$y.z", "bad", "free", "held"}; !slices.Equal(want, names) {
			b.Fatalf("names\nwant %q\ngot  %q", want, names)
		}
		for _, name := range names {
			one, alone := snapshots[name], b.snapshot(name)
			if !reflect.DeepEqual(one.Lock, alone.Lock) || !reflect.DeepEqual(one.Ping, alone.Ping) {
				b.Errorf("%s\nalone %+v\nall   %+v", name, alone, one)
			}
			if one.ServerTime.IsZero() != alone.ServerTime.IsZero() || !b.near(one.ServerTime) {
				b.Errorf("%s: server's clock %v", name, one.ServerTime)
			}
		}
		b.wantPings("held", snapshots["held"].Pings, []string{process(0), process(2)},
			[]string{process(1)})
		if snapshots["bad"].Lock != nil || snapshots["bad"].LockErr == nil {
			b.Fatalf("want LockErr, got %+v", snapshots["bad"])
		}
		b.wantMalformed(snapshots["bad"].LockErr, "locks", "bad", "waiters")
		assert.Equal(b, len(b.snapshots())+len(b.snapshots("missing")), 0, "%d snapshots of missing locks, want %d")
	}},
	{"Pings_OfHoldersAndWaiters", func(b *bench) {
		b.ping(process(0))
		b.ping(process(2))
		b.insert("lockpings", bson.D{field("_id", process(4)), field("ping", "x")})
		g := b.readers("balancer", 3)
		writer, last := request("balancer", process(3)), request("balancer", process(4))
		b.enter(writer)
		b.enter(last)
		listed, _ := b.rows(false)
		waited, _ := b.rows(true)
		if len(listed) != 1 || len(waited) != 1 {
			b.Fatalf("want one row, got %+v and %+v", listed, waited)
		}
		for what, got := range map[string]map[string]catalog.PingState{
			"snapshot": b.snapshot("balancer").Pings, "snapshots": b.snapshots("balancer")["balancer"].Pings,
			"list": listed[0].Pings, "waiting": waited[0].Pings,
		} {
			bad := got[process(4)]
			if bad.Ping != nil || bad.Err == nil {
				b.Errorf("%s: malformed ping: %+v", what, bad)
				continue
			}
			b.wantMalformed(bad.Err, "lockpings", process(4), "ping")
			delete(got, process(4))
			b.wantPings(what, got, []string{g[0].Process, g[2].Process},
				[]string{g[1].Process, writer.Process})
		}
	}},
	{"HeldOrFree_ReturnsOwnGrantsAndFreeLocks", func(b *bench) {
		mine, other := b.queued("mine", 2), b.queued("other", 2)
		next := b.requests("next", 2)
		next[0].Process, next[1].Process = process(1), process(0)
		b.enter(next[0])
		b.enter(next[1])
		assert.Value(On(b.Catalog).Evict(b.ctx, dead(next[0]), "silent"))(b)
		other[0].Process = ""
		b.insert("locks", free("free"))
		b.queued("left", 2)
		b.rewrite("left", field("state", int32(0)))
		b.insert("locks", with(held("bad", process(0)), field("waiters", int32(5))))
		b.acquire(request("acquired", process(0)))
		b.queued("not asked for", 1)
		grants, unheld := b.heldOrFree(process(0), "mine", "next", "free", "left", "bad", "missing")
		got := grant(next[1], planted+2)
		got.Evidence = "silent"
		b.wantGrants(grants, nil, grant(mine[0], planted+1), got)
		assert.Slices(b, []string{"free", "left"}, unheld, "free\nwant %q\ngot  %q")
		grants, unheld = b.heldOrFree(process(1), "mine", "other", "next")
		b.wantGrants(grants, nil)
		if len(unheld) > 0 {
			b.Errorf("free: %q", unheld)
		}
	}},
	{"HeldOrFree_Always_ReturnsTheWaiters", func(b *bench) {
		g := b.queued("waited", 3)
		b.queued("other", 2)
		b.insert("locks", with(held("bad", alice), field("waiters", int32(5))))
		locks, err := b.Catalog.HeldOrFree(b.ctx, process(2), []string{"waited", "other", "bad", "missing"},
			[]string{"waited", "bad", "missing", "not asked for"})
		assert.Must(b, err)
		if len(locks) != 1 || locks[0].Name != "waited" || !locks[0].Held {
			b.Fatalf("got %+v, want the waiters of one lock", locks)
		}
		b.wantQueue(locks[0], g[1:]...)
	}},
	{"ListWaited_YieldsLocksWithWaiters", func(b *bench) {
		b.ping(process(0))
		for _, name := range []string{"b", "a", "c"} {
			b.queued(name, 2)
		}
		b.queued("alone", 1)
		b.readers("shared", 2)
		b.insert("locks", free("free"))
		b.insert("locks", append(free("none"), field("waiters", bson.A{})))
		b.rewrite("c", field("state", int32(0)))
		b.insert("locks", with(held("bad", alice), field("waiters", bson.A{
			plantedWaiter(request("bad", alice)), bson.D{},
		})))
		b.insert("locks", with(held("bad and alone", alice), field("state", "1")))
		rows, malformed := b.rows(true)
		var names []string
		for _, row := range rows {
			names = append(names, row.Lock.Name)
			if len(row.Lock.Waiters) != 1 || row.ServerTime.IsZero() || !b.near(row.ServerTime) {
				b.Errorf("row %+v", row)
			}
			if row.Ping == nil || row.Ping.Process != process(0) {
				b.Errorf("%s: ping %+v", row.Lock.Name, row.Ping)
			}
		}
		assert.Slices(b, []string{"a", "b", "c"}, names, "names\nwant %q\ngot  %q")
		assert.Slices(b, []string{"bad waiters.1.ts"}, malformed, "malformed\nwant %q\ngot  %q")
	}},
}
