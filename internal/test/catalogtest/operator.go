package catalogtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/internal/test/assert"
)

var operatorCases = []testCase{
	{"List_IsInOrderWithPings", func(b *bench) {
		p := b.ping(alice)
		for _, name := range []string{"b", "é", "a", "B", "ab", "b c"} {
			b.acquire(request(name, alice))
		}
		b.acquire(request("z", bob))
		var names []string
		rows, _ := b.rows(false)
		for _, row := range rows {
			names = append(names, row.Lock.Name)
			if want := row.Lock.Process == alice; want != (row.Ping != nil) ||
				want && *row.Ping != p {
				b.Errorf("%s: ping %+v", row.Lock.Name, row.Ping)
			}
			if row.ServerTime.IsZero() || !b.near(row.ServerTime) {
				b.Errorf("%s: server's clock %v", row.Lock.Name, row.ServerTime)
			}
		}
		if want := []string{"B", "a", "ab", "b", "b c", "z", "é"}; !slices.Equal(want, names) {
			b.Errorf("order\nwant %q\ngot  %q", want, names)
		}
	}},
	{"List_MalformedDocument_IsNamedAndSkipped", func(b *bench) { // F11
		for _, id := range []any{int32(7), bson.D{field("a", 1)}, historicalTS, true} {
			b.insert("locks", bson.D{field("_id", id), field("state", int32(0))})
		}
		b.insert("locks", bson.D{field("_id", "a"), field("state", "1")})
		b.insert("lockpings", bson.D{field("_id", alice), field("ping", "x")})
		b.acquire(request("b", alice))
		rows, malformed := b.rows(false)
		if len(rows) != 1 || rows[0].Lock.Name != "b" || rows[0].PingErr == nil || rows[0].Ping != nil {
			b.Errorf("want one row with PingErr, got %+v", rows)
		}
		ids := slices.DeleteFunc(slices.Clone(malformed), func(bad string) bool {
			return !strings.HasSuffix(bad, " _id")
		})
		if len(ids) != 4 || len(malformed) != 5 || !slices.Contains(malformed, "a state") {
			b.Errorf("malformed %q", malformed)
		}
	}},
	{"List_StopsWhenAskedTo", func(b *bench) {
		for _, name := range []string{"a", "b", "c"} {
			b.acquire(request(name, alice))
		}
		n := 0
		for range b.Catalog.List(b.ctx, false) {
			if n++; n == 2 {
				break
			}
		}
		assert.Equal(b, n, 2, "want 2 rows, got %d (%d)")
	}},
	{"Break_FreesAndFencesOff", func(b *bench) {
		g := request("balancer", alice)
		b.acquire(g)
		l, err := On(b.Catalog).Break(b.ctx, catalog.Session{Name: "balancer"}, 1, "stuck since noon")
		if err != nil || l.Held || l.Fence != 2 || l.TS == g.TS || l.TS.IsZero() {
			b.Fatalf("break: %+v, %v", l, err)
		}
		b.wantDocument(b.document("locks", "balancer"), with(acquired(g, 2, 2),
			field("state", int32(0)), field("ts", l.TS), field("why", "broken: stuck since noon")))
		b.wantUntouched("locks", "balancer", func() {
			b.wantErr(b.release(g.Session), catalog.ErrNoMatch)
			_, err := On(b.Catalog).Confirm(b.ctx, g)
			b.wantErr(err, catalog.ErrNoMatch)
		})
		if next := b.acquire(request("balancer", bob)); next.Fence != 3 {
			b.Errorf("fence: want 3, got %d", next.Fence)
		}
	}},
}

var pruneLocksCases = []testCase{
	{"PruneLocks_TakesOldAndFree_LeavesTheRest", func(b *bench) {
		now := b.ago(0)
		when := func(age time.Duration) bson.E {
			return field("when", bson.NewDateTimeFromTime(now.Add(-age)))
		}
		plant := func(name string, age time.Duration, more ...bson.E) {
			b.insert("locks", with(free(name), append([]bson.E{
				when(age), field("ts", historicalTS), field("fence", planted), field("rev", int64(3)),
			}, more...)...))
		}
		plant("old", 100*time.Hour)
		plant("young", time.Hour)
		plant("waited", 100*time.Hour, waiters(request("waited", alice)))
		plant("high", 100*time.Hour, field("fence", now.UnixMilli()))
		plant("old too", 100*time.Hour)
		b.insert("locks", free("without anything"))
		b.insert("locks", with(held("held", alice), when(100*time.Hour)))
		n, next, err := b.Catalog.PruneLocks(b.ctx, now.Add(-96*time.Hour), "", 1000)
		if err != nil || n != 2 || next != "" {
			b.Fatalf("%d pruned, next %q, %v; want 2", n, next, err)
		}
		for _, name := range []string{"young", "waited", "high", "without anything", "held"} {
			if b.document("locks", name) == nil {
				b.Errorf("%q was deleted", name)
			}
		}
	}},
	{"PruneLocks_ContinuesAfterTheLastName", func(b *bench) {
		long := field("when", bson.NewDateTimeFromTime(b.ago(100*time.Hour)))
		for i := range 10 {
			b.insert("locks", with(free(fmt.Sprint("lock ", i)), long,
				field("ts", historicalTS), field("fence", planted), field("rev", int64(1))))
		}
		sum, after := 0, ""
		for round := 0; ; round++ {
			n, next, err := b.Catalog.PruneLocks(b.ctx, b.ago(96*time.Hour), after, 3)
			if err != nil || n > 3 || round > 4 {
				b.Fatalf("call %d: %d, %v", round, n, err)
			}
			sum += n
			if after = next; next == "" {
				break
			}
		}
		assert.Equal(b, sum, 10, "%d pruned, want %d")
	}},
}
