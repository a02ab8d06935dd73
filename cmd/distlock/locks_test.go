package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/census"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
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

func TestOutput_CharactersBeyondTheBasicPlane_AreEscapedAsPairs(t *testing.T) {
	t.Parallel()
	const tag = "a\U000e0041b\U0001f600" // a tag character is not printable, a smiley is
	var out strings.Builder
	assert.Must(t, output(&out, true, false, listing{Database: tag}))
	var back listing
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back.Database != tag {
		t.Errorf("read back %q (%v) from %s, want %q", back.Database, err, out.String(), tag)
	}
	if strings.Contains(out.String(), "\U000e0041") {
		t.Errorf("not escaped: %q", out.String())
	}
}

// If a database was never used, "distlock locks" fails. If all locks are free, "distlock locks"
// reports their number.
func TestLocks_NothingToShow_SaysWhereAndWhy(t *testing.T) {
	b := newBase(t)
	const never = "nothing was ever locked there"
	b.cli("locks").want(t, exitFailed, never)
	b.cli("locks", "job").want(t, exitFailed, `there is no lock "job"`, never)
	b.cli("break", "job", "--fence", "1", "--why", "x").
		want(t, exitFailed, `there is no lock "job"`, never)
	if r := b.cli("locks", "--json").want(t, exitFailed, `"neverUsed": true`); strings.Contains(r.out,
		`"neverUsed": false`) {
		t.Errorf("it says both: %s", r.out)
	}
	b.insert(catalog.LocksCollection, bsontest.D("_id", "job", "state", int32(0)))
	in := fmt.Sprintf("in database %q", b.name)
	b.cli("locks", "--held").want(t, 0, "none of 1 locks matches")
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

func (l listing) names() (all []string) {
	for _, r := range l.Locks {
		all = append(all, r.Name)
	}
	return slices.Compact(all)
}

// lockOf returns a held lock with the given number of waiters.
func lockOf(name string, waiters int, holders ...distlock.LockInfo) *census.Lock {
	l := &census.Lock{Name: name, Holders: holders, Queue: make([]distlock.LockInfo, waiters)}
	for i := range l.Holders {
		l.Holders[i].Name, l.Holders[i].Held = name, true
	}
	for i := range l.Queue {
		l.Queue[i].Name = name
	}
	return l
}

// A filter removes the locks that it does not select. It sorts the remaining locks by trouble or by
// the requested order.
func TestFilter_SelectsAndSorts(t *testing.T) {
	t.Parallel()
	holder := func(age, ping time.Duration) distlock.LockInfo {
		return distlock.LockInfo{Age: age, PingAge: ping, HasPing: true}
	}
	dead := func(age, ping time.Duration) distlock.LockInfo {
		return distlock.LockInfo{Age: age, PingAge: ping, Condemned: true}
	}
	all := []*census.Lock{
		lockOf("a", 0, holder(5, 9)),
		lockOf("b", words.LongQueue, holder(9, -1)),
		lockOf("c", 0, dead(1, 20), holder(2, 2)),
		lockOf("d", 1, dead(0, 0)),
		lockOf("elected", words.LongQueue, holder(3, -1)),
		lockOf("f", words.LongQueue+1, holder(0, -1)),
		{Name: "free", Holders: []distlock.LockInfo{dead(8, -1)}},
	}
	for i := range all[4].Queue {
		all[4].Queue[i].Who = "election:ab"
	}
	for name, c := range map[string]struct {
		by   filter
		want string
	}{
		"trouble": {filter{order: "trouble"}, "d c f b a elected free"},
		"name":    {filter{order: "name"}, "a b c d elected f free"},
		"held":    {filter{order: "held"}, "b a elected c d f free"},
		"ping":    {filter{order: "ping"}, "c a d b elected f free"},
		"queue":   {filter{order: "queue"}, "f b elected d a c free"},
		"silent":  {filter{order: "trouble", silent: true}, "d c"},
		"waited":  {filter{order: "trouble", waited: true}, "d f b elected"},
		"is held": {filter{order: "name", held: true}, "a b c d elected f"},
	} {
		var got []string
		for _, l := range c.by.apply(all) {
			got = append(got, l.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The command "distlock locks --json" sorts the locks by name, unless --sort names another order.
// The error for an unknown order lists the valid orders.
func TestLocks_Order_TroubleForPeopleNamesForPrograms(t *testing.T) {
	b := newBase(t)
	fill(b)
	for want, args := range map[string][]string{
		"alive bad-ping condemned foreign free no-ping silent": {},
		"bad-ping condemned no-ping silent alive foreign free": {"--sort", "trouble"},
		"bad-ping condemned no-ping silent":                    {"--silent"},
	} {
		got := decoded[listing](t, b.cli(append([]string{"locks", "--json"}, args...)...).want(t, 0))
		if strings.Join(got.names(), " ") != want {
			t.Errorf("%v: %v, want %s", args, got.names(), want)
		}
	}
	b.cli("locks", "--sort", "size").want(t, exitUsage, "trouble, name, held, ping, queue")
	b.share("pool", catalog.Permit, 2, bson.A{entryDoc("p:1:1:a", "", catalog.Permit, 0, 0),
		entryDoc("p:1:1:a", "", catalog.Permit, 0, 0)}, bson.A{})
	b.cli("locks", "--waited").want(t, 0, "none of 8 locks matches")
}

// On a terminal, "distlock locks" prints the locks in trouble at the end, just above the summary.
func TestLocks_OnATerminal_TroubleIsLast(t *testing.T) {
	t.Parallel()
	whole := newListing("db")
	whole.troubleFirst = true
	alive := distlock.LockInfo{HasPing: true}
	for _, l := range []*census.Lock{lockOf("dead", 0, distlock.LockInfo{Condemned: true}),
		lockOf("alive", 1, alive), lockOf("fine", 1, alive)} {
		whole.add(l)
	}
	var out strings.Builder
	whole.print(&out, layout(80))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if n := len(lines); n < 3 || !strings.HasPrefix(lines[n-3], "dead ") ||
		lines[n-1] != "3 locks, 1 in trouble, 2 waiters" {
		t.Errorf("the screen ends with\n%s", out.String())
	}
}

// The command "distlock ps" lists each process once, with all its locks and queue entries. The list
// includes processes without a lock and processes without a ping.
func TestPs_EveryProcess_IsListedOnce(t *testing.T) {
	b := newBase(t)
	b.cli("ps").want(t, exitFailed, "nothing was ever locked there")
	fill(b)
	fillShared(b)
	b.ping("idle:7:1:g", time.Minute, bson.E{Key: "seq", Value: int64(1)},
		bson.E{Key: "takeoverMS", Value: int64(60_000)}, bson.E{Key: "local",
			Value: bson.NewDateTimeFromTime(time.Now().Add(-time.Minute + 90*time.Second))})
	golden(t, "ps.golden", b.cli("ps").want(t, 0).out)
	got := decoded[processList](t, b.cli("ps", "--json").want(t, 0))
	rows := map[string]processRow{}
	for _, p := range got.Processes {
		rows[p.Process] = p
	}
	if len(rows) != 7 || len(got.Processes) != len(rows) {
		t.Errorf("%d rows of %d processes, want 7", len(got.Processes), len(rows))
	}
	alive, idle := rows["alive:1:1:a"], rows["idle:7:1:g"]
	if len(alive.Holds) != 3 || len(alive.Waits) != 1 {
		t.Errorf("holds %q and waits for %q", alive.Holds, alive.Waits)
	}
	if idle.AheadMS == nil || *idle.AheadMS < 80_000 || *idle.AheadMS > 100_000 ||
		duration(idle.TakeoverMS) != time.Minute || idle.EveryMS != nil || alive.TakeoverMS != nil {
		t.Errorf("the idle one is %+v", idle)
	}
	inTrouble := func(p processRow) bool {
		return len(p.Marks) > 0 && p.Marks[0] != "foreign" && len(p.Holds)+len(p.Waits) > 0
	}
	at := slices.IndexFunc(got.Processes, func(p processRow) bool { return !inTrouble(p) })
	if at < 1 || slices.ContainsFunc(got.Processes[at:], inTrouble) {
		t.Errorf("the processes in trouble do not come first: %+v", got.Processes)
	}
}

// Of the dead processes, the one whose locks have the most waiters comes first.
func TestPs_DeadProcesses_MostAwaitedFirst(t *testing.T) {
	b := newBase(t)
	b.heldBy("a", "idle:1:1:a", 1)
	b.heldBy("b", "idle:1:1:a", 1)
	b.share("c", catalog.Exclusive, 0,
		bson.A{entryDoc("needed:2:1:b", "", "", 0, time.Hour, bson.E{Key: "fence", Value: int64(1)})},
		bson.A{entryDoc("waits:3:1:c", "", "", 0, time.Minute)})
	got := decoded[processList](t, b.cli("ps", "--json").want(t, 0))
	if got.Processes[0].Process != "needed:2:1:b" || got.Processes[1].Process != "idle:1:1:a" {
		t.Errorf("the order is %+v", got.Processes)
	}
}

// checkWidth checks that no line is wider than the terminal and that the text has no control
// characters.
func checkWidth(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := cells(strings.TrimSuffix(line, "\n")); n > width {
			t.Errorf("a line of %d columns in a terminal of %d: %s", n, width, line)
		}
	}
	if i := strings.IndexAny(text, "\x1b\u202e\u009b"); i >= 0 {
		t.Errorf("a terminal could obey %q", text[i:])
	}
}
