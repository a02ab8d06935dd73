package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock"
)

// What an operator is told of a dead holder is what the takeover rule would do: each row is a case
// of it.
func TestForesee_Rules(t *testing.T) {
	t.Parallel()
	const none = -1
	alive := distlock.LockInfo{Process: "p", Held: true, HasPing: true, Takeover: time.Minute, PingEvery: 5 * time.Second,
		PingAge: 3 * time.Second, LeaseAge: -1}
	with := func(change func(*distlock.LockInfo)) distlock.LockInfo {
		i := alive
		change(&i)
		return i
	}
	for name, c := range map[string]struct {
		of                     distlock.LockInfo
		rule                   string
		lost, earliest, latest float64 // seconds
	}{
		"alive": {alive, "witnesses", 42, 57, 60},
		"past its deadline": {with(func(i *distlock.LockInfo) { i.PingAge = 50 * time.Second }),
			"witnesses", 0, 10, 60},
		"silent": {with(func(i *distlock.LockInfo) { i.PingAge = time.Hour }), "witnesses", 0, 15, 60},
		"silent, slow pings": {with(func(i *distlock.LockInfo) { i.PingAge, i.PingEvery = time.Hour, 50*time.Second }),
			"watch", 0, 0, 60},
		"condemned": {with(func(i *distlock.LockInfo) { i.Condemned = true }), "condemned", 0, 0, 0},
		"no ping": {with(func(i *distlock.LockInfo) { i.HasPing, i.PingAge = false, -1 }),
			"watch", none, 0, 60},
		"ping of unknown age": {with(func(i *distlock.LockInfo) { i.PingAge = -1 }), "watch", none, 0, 60},
		"foreign":             {with(func(i *distlock.LockInfo) { i.Foreign, i.Takeover = true, 0 }), "watch", none, 897, 900},
		"nothing recorded": {with(func(i *distlock.LockInfo) { i.Takeover = 0 }),
			"witnesses", 672, 897, 900},
		"bad ping": {with(func(i *distlock.LockInfo) { i.BadPing = &distlock.MalformedError{} }), "never", none, none, none},
		"lease ends first": {with(func(i *distlock.LockInfo) { i.Lease, i.LeaseAge = 20*time.Second, 4*time.Second }),
			"lease", 11, 16, 20},
		"ping ends first": {with(func(i *distlock.LockInfo) { i.Lease, i.LeaseAge = time.Hour, 0 }),
			"witnesses", 42, 57, 60},
	} {
		o := foresee(c.of, 0, nil)
		seconds := func(ms *int64) float64 {
			if ms == nil {
				return none
			}
			return float64(*ms) / 1000
		}
		if o.Rule != c.rule || seconds(o.LostInMS) != c.lost && name != "no ping" || seconds(o.EarliestMS) != c.earliest ||
			seconds(o.LatestMS) != c.latest {
			t.Errorf("%s: rule %s, lost in %v, taken in %v to %v s; want %s, %v, %v to %v", name, o.Rule,
				seconds(o.LostInMS), seconds(o.EarliestMS), seconds(o.LatestMS), c.rule, c.lost, c.earliest, c.latest)
		}
	}
}

func TestLocks_Name_EverySortOfLock(t *testing.T) {
	b := newBase(t)
	fill(b)
	fillShared(b)
	b.happened(time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC),
		catalog.HistoryEntry{Kind: "taken over", Session: catalog.Session{Name: "alive"}, Process: "alive:1:1:a",
			Previous: foreign, Rule: "watch", Evidence: foreign, Waited: time.Minute},
		catalog.HistoryEntry{Kind: "released", Session: catalog.Session{Name: "other"},
			Process: "alive:1:1:a"})
	for _, name := range []string{"alive", "condemned", "foreign", "no-ping", "silent", "free", "bad-ping", "table", "pool"} {
		golden(t, "show-"+name+".golden", cli(t, b.flags("locks", name)...).want(t, 0).out)
	}
	cli(t, b.flags("locks", "nothing")...).want(t, exitFailed, `there is no lock "nothing"`)
	cli(t, b.flags("locks", "bad-state")...).want(t, 0, "cannot be understood", "remedy")
}

// Foreign texts stay what they are for programs, and nothing of them reaches a terminal.
func TestLocks_Name_JSON_HasAllOfIt(t *testing.T) {
	b := newBase(t)
	fill(b)
	fillShared(b)
	out := cli(t, b.flags("locks", "table", "--json")...).want(t, 0).out
	var got listing
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if len(got.Locks) != 2 || len(got.Line.Waiters) != 3 || len(got.Outlooks) != 2 || got.Outlooks[0].Rule != "witnesses" ||
		got.Outlooks[0].Next != "silent:2:1:b" || got.Outlooks[1].Rule != "never" || got.Locks[0].Why != foreign {
		t.Errorf("got %+v from\n%s", got, out)
	}
	if i := strings.IndexAny(out, "\x1b\u202e\u009b"); i >= 0 {
		t.Errorf("a terminal could obey %q", out[i:])
	}
	out = cli(t, b.flags("locks", "condemned", "--json")...).want(t, 0).out
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Condemned) != 1 || got.Condemned[0].By != "x" ||
		got.Condemned[0].Evidence != foreign {
		t.Errorf("got %+v (%v) from\n%s", got.Condemned, err, out)
	}
}

// fillShared writes locks that several hold, as fillLines does, for a database that fill has
// filled.
func fillShared(b *base) {
	fence := func(n int64) bson.E { return bson.E{Key: "fence", Value: n} }
	b.share("pool", catalog.Permit, 3,
		bson.A{party("alive:1:1:a", "x", catalog.Permit, 0, longAgo, fence(7))}, bson.A{})
	b.share("table", catalog.Shared, 0,
		bson.A{party("alive:1:1:a", foreign, catalog.Shared, 0, longAgo, fence(4)),
			party("bad:5:1:e", "", catalog.Shared, 0, longAgo, fence(5))},
		bson.A{party("silent:2:1:b", foreign, catalog.Exclusive, 0, time.Hour),
			party("alive:1:1:a", "to read", catalog.Shared, 0, 5*time.Second),
			party("bad:5:1:e", "", catalog.Shared, 0, time.Second)})
}
