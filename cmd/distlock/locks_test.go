package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/distlock/history"
	"mongodlm/internal/test/assert"
	"mongodlm/internal/test/bsontest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// foreign has control characters that must not reach a terminal.
const foreign = "round \x1b[2J\u202e\u009b31m\nx"

// fill writes locks and pings of each kind, valid and malformed.
func fill(b *base) {
	when := bson.NewDateTimeFromTime(time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC))
	doc := func(name string, state any, process, why string, fence any, extra ...bson.E) {
		b.insert(catalog.LocksCollection,
			append(bsontest.D("_id", name, "state", state, "process", process, "who", process+":go:00000001",
				"why", why, "when", when, "ts", bson.NewObjectID(), "fence", fence), extra...))
	}
	seq := bson.E{Key: "seq", Value: int64(5)}
	b.ping("alive:1:1:a", 3*time.Second, seq)
	b.ping("silent:2:1:b", 50*time.Hour, seq)
	b.ping("foreign:3:1:c", 7*time.Second)
	b.ping("dead:4:1:d", 2*time.Hour, seq,
		bson.E{Key: "condemned", Value: bsontest.D("by", "x", "evidence", foreign)})
	b.insert(catalog.PingsCollection, bsontest.D("_id", "bad:5:1:e", "ping", "yesterday"))
	doc("alive", int32(1), "alive:1:1:a", foreign, int64(7))
	doc("bad-fence", int32(1), "alive:1:1:a", "x", "seven")
	doc("bad-ping", int32(1), "bad:5:1:e", "x", int64(2))
	doc("bad-state", "1", "alive:1:1:a", "x", int64(2))
	doc("condemned", int32(1), "dead:4:1:d", "x", int64(3))
	doc("foreign", int32(2), "foreign:3:1:c", "a mongos", int64(0))
	doc("free", int32(0), "alive:1:1:a", "was quick", int64(12))
	doc("no-ping", int32(1), "gone:6:1:f", "x", int64(4))
	doc("silent", int32(1), "silent:2:1:b", "", int64(5))
}

var (
	ages   = regexp.MustCompile(`\b(\d+(\.\d+)?(h|m|s|ms|d))+\b`)
	spaces = regexp.MustCompile(` {2,}`)
)

// golden compares an output with a file in the folder testdata. Ages and widths do not matter.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = spaces.ReplaceAllString(ages.ReplaceAllString(got, "AGE"), "  ")
	path := filepath.Join("testdata", name)
	if *update {
		assert.Must(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want := assert.Value(os.ReadFile(path))(t)
	if got != string(want) {
		t.Errorf("%s differs\nwant:\n%s\ngot:\n%s", path, want, got)
	}
}

func TestLocks_EverySortOfDocument_IsListed(t *testing.T) {
	b := newBase(t)
	fill(b)
	r := b.cli("locks").want(t, 0)
	golden(t, "locks.golden", r.out)
	held := b.cli("locks", "--held").want(t, 0).out
	if strings.Contains(held, "was quick") || !strings.Contains(held, "a mongos") {
		t.Errorf("--held shows:\n%s", held)
	}
}

func TestWriteJSON_CharactersBeyondTheBasicPlane_AreEscapedAsPairs(t *testing.T) {
	t.Parallel()
	const tag = "a\U000e0041b\U0001f600" // a tag character is not printable, a smiley is
	var out strings.Builder
	assert.Must(t, writeJSON(&out, tag))
	var back string
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back != tag {
		t.Errorf("read back %q (%v) from %s, want %q", back, err, out.String(), tag)
	}
	if strings.Contains(out.String(), "\U000e0041") {
		t.Errorf("not escaped: %q", out.String())
	}
}

// If a database was never used, "distlock locks" fails and names the databases that have locks. If
// all locks are free, "distlock locks" reports their number.
func TestLocks_NothingToShow_SaysWhereAndWhy(t *testing.T) {
	t.Parallel()
	uri, _ := ownServer(t) // has no other databases
	b, other := newBaseOf(t, uri), newBaseOf(t, uri)
	other.hold("job", 3)
	never := "nothing was ever locked there; databases on this server that have one: "
	b.cli("locks").want(t, exitFailed, never, other.name)
	b.cli("locks", "job").want(t, exitFailed, `there is no lock "job"`, never, other.name)
	b.cli("break", "job", "--fence", "1", "--why", "x").
		want(t, exitFailed, `there is no lock "job"`, never, other.name)
	if r := b.cli("locks", "--json").want(t, exitFailed, `"neverUsed": true`); strings.Contains(r.out,
		`"neverUsed": false`) {
		t.Errorf("it says both: %s", r.out)
	}
	b.insert(catalog.LocksCollection, bsontest.D("_id", "job", "state", int32(0)))
	in := fmt.Sprintf("in database %q", b.name)
	b.cli("locks", "--held").want(t, 0, "no lock is held "+in+"; free: 1")
	b.cli("locks", "other").want(t, exitFailed, `there is no lock "other" `+in)
}

// The command "distlock locks" marks only the present leader as leader. For the free lock of an
// election, it prints the metadata of the last leader in the column WHY.
func TestLocks_Leader_IsShownWithItsMetadata(t *testing.T) {
	b := newBase(t)
	b.ping(otherProcess, time.Second, bson.E{Key: "seq", Value: int64(5)})
	for name, state := range map[string]int32{"chief": 1, "was": 0} {
		b.insert(catalog.LocksCollection, bsontest.D("_id", name, "state", state, "process", otherProcess,
			"who", otherProcess+":election:0a", "why", "10.0.0.7:8080",
			"ts", bson.NewObjectID(), "fence", int64(3)))
	}
	out := b.cli("locks").want(t, 0, "10.0.0.7:8080").out
	if n := strings.Count(out, "leader"); n != 1 {
		t.Errorf("%d leaders are shown, want 1:\n%s", n, out)
	}
	b.cli("locks", "chief").want(t, 0, "metadata  10.0.0.7:8080", "mark      leader")
	b.cli("locks", "was").want(t, 0, "why       10.0.0.7:8080")
}

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

// The JSON output contains stored strings completely, with escapes for control characters.
func TestLocks_Name_JSON_HasAllOfIt(t *testing.T) {
	b := newBase(t)
	fill(b)
	fillShared(b)
	r := b.cli("locks", "table", "--json").want(t, 0)
	got := decoded[details](t, r)
	if len(got.Locks) != 2 || len(got.Queue.Waiters) != 3 || len(got.Outlooks) != 2 ||
		got.Outlooks[0].Rule != "witnesses" || got.Outlooks[0].Next != "bad:5:1:e" ||
		got.Outlooks[0].Passed != 2 || got.Outlooks[1].Rule != "never" || got.Locks[0].Why != foreign {
		t.Fatalf("got %+v from\n%s", got, r.out)
	}
	checkWidth(t, r.out, 10_000)
	first, last := got.Queue.Waiters[0], got.Queue.Waiters[2]
	if first.Place != 1 || first.Why != foreign || first.Mode != "exclusive" || first.Since == nil ||
		first.WaitedMS == nil || *first.WaitedMS < time.Hour.Milliseconds() {
		t.Errorf("the first waiter is %+v", first)
	}
	if last.Place != 3 || last.PingAgeMS != nil || len(last.Marks) != 1 {
		t.Errorf("the last waiter is %+v", last)
	}
	got = decoded[details](t, b.cli("locks", "condemned", "--json").want(t, 0))
	if len(got.Condemned) != 1 || got.Condemned[0].By != "x" || got.Condemned[0].Evidence != foreign {
		t.Errorf("condemned %+v", got.Condemned)
	}
}

// fillShared writes a lock with permits and a shared lock, in addition to the locks that fill
// writes.
func fillShared(b *base) {
	fence := func(n int64) bson.E { return bson.E{Key: "fence", Value: n} }
	b.share("pool", catalog.Permit, 3,
		bson.A{entryDoc("alive:1:1:a", "x", catalog.Permit, 0, longAgo, fence(7))}, bson.A{})
	b.shareTable()
}
