package catalogtest

import (
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/test/assert"
)

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
				b.Errorf("%q is gone", name)
			}
		}
	}},
	{"PruneLocks_GoesOnWhereItEnded", func(b *bench) {
		long := field("when", bson.NewDateTimeFromTime(b.ago(100*time.Hour)))
		for i := range 10 {
			b.insert("locks", with(free(fmt.Sprint("lock ", i)), long,
				field("ts", historicalTS), field("fence", planted), field("rev", int64(1))))
		}
		sum, after := 0, ""
		for turn := 0; ; turn++ {
			n, next, err := b.Catalog.PruneLocks(b.ctx, b.ago(96*time.Hour), after, 3)
			if err != nil || n > 3 || turn > 4 {
				b.Fatalf("turn %d: %d, %v", turn, n, err)
			}
			sum += n
			if after = next; next == "" {
				break
			}
		}
		assert.Equal(b, sum, 10, "%d pruned, want %d")
	}},
}
