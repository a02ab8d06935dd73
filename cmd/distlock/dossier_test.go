package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock/history"
)

func TestLocks_Name_EverySortOfLock(t *testing.T) {
	b := newBase(t)
	fill(b)
	fillShared(b)
	b.happened(time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC), history.Entry{Kind: "taken over",
		Name: "alive", Process: "alive:1:1:a", Previous: foreign, Rule: "watch", Mode: "exclusive",
		Evidence: foreign, WaitedMS: 60_000}, history.Entry{Kind: "released", Name: "other",
		Process: "alive:1:1:a"})
	for _, name := range []string{"alive", "condemned", "foreign", "no-ping", "silent", "free",
		"bad-ping", "table", "pool"} {
		golden(t, "show-"+name+".golden", b.cli("locks", name).want(t, 0).out)
	}
	b.cli("locks", "nothing").want(t, exitFailed, `there is no lock "nothing"`)
	b.cli("locks", "bad-state").want(t, 0, "cannot be understood", "remedy")
}

// JSON contains foreign strings completely, with escapes for control characters.
func TestLocks_Name_JSON_HasAllOfIt(t *testing.T) {
	b := newBase(t)
	fill(b)
	fillShared(b)
	out := b.cli("locks", "table", "--json").want(t, 0).out
	var got listing
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if len(got.Locks) != 2 || len(got.Line.Waiters) != 3 || len(got.Outlooks) != 2 ||
		got.Outlooks[0].Rule != "witnesses" || got.Outlooks[0].Next != "bad:5:1:e" ||
		got.Outlooks[0].Passed != 2 || got.Outlooks[1].Rule != "never" || got.Locks[0].Why != foreign {
		t.Fatalf("got %+v from\n%s", got, out)
	}
	if i := strings.IndexAny(out, "\x1b\u202e\u009b"); i >= 0 {
		t.Errorf("a terminal could obey %q", out[i:])
	}
	first, last := got.Line.Waiters[0], got.Line.Waiters[2]
	if first.Place != 1 || first.Why != foreign || first.Mode != exclusive || first.Since == nil ||
		first.WaitedMS == nil || *first.WaitedMS < time.Hour.Milliseconds() {
		t.Errorf("the first waiter is %+v", first)
	}
	if last.Place != 3 || last.PingAgeMS != nil || len(last.Marks) != 1 {
		t.Errorf("the last waiter is %+v", last)
	}
	out = b.cli("locks", "condemned", "--json").want(t, 0).out
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Condemned) != 1 ||
		got.Condemned[0].By != "x" || got.Condemned[0].Evidence != foreign {
		t.Errorf("got %+v (%v) from\n%s", got.Condemned, err, out)
	}
}

// fillShared adds locks with several holders to the locks that fill writes.
func fillShared(b *base) {
	fence := func(n int64) bson.E { return bson.E{Key: "fence", Value: n} }
	b.share("pool", catalog.Permit, 3,
		bson.A{party("alive:1:1:a", "x", catalog.Permit, 0, longAgo, fence(7))}, bson.A{})
	b.shareTable()
}
