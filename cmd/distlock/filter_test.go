package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/words"
	"mongodlm/distlock"
)

func (l listing) names() (all []string) {
	for _, r := range l.Locks {
		all = append(all, r.Name)
	}
	return slices.Compact(all)
}

// A filter removes the locks that it does not select, together with their queues. It sorts the
// remaining locks by trouble or by the requested order.
func TestFilter_SelectsAndSorts(t *testing.T) {
	t.Parallel()
	ms := func(n int64) *int64 { return &n }
	dead := distlock.LockInfo{Held: true, Condemned: true}
	standby := distlock.LockInfo{Place: 1, Who: "election:ab"}
	whole := newListing("db")
	whole.Locks = []row{
		{Name: "a", Held: true, HeldForMS: ms(5), PingAgeMS: ms(9)},
		{Name: "b", Held: true, HeldForMS: ms(9), Waiters: words.LongQueue},
		{Name: "c", Held: true, HeldForMS: ms(1), PingAgeMS: ms(20), info: dead},
		{Name: "c", Held: true, HeldForMS: ms(2), PingAgeMS: ms(2)},
		{Name: "d", Held: true, HeldForMS: ms(0), PingAgeMS: ms(0), Waiters: 1, info: dead},
		{Name: "elected", Held: true, HeldForMS: ms(3), Waiters: words.LongQueue},
		{Name: "f", Held: true, HeldForMS: ms(0), Waiters: words.LongQueue + 1},
	}
	unwaited := newListing("db")
	unwaited.Locks = whole.Locks[:1]
	whole.Queue.Waiters = append(whole.Queue.Waiters, waiterRow{Name: "d"}, waiterRow{Name: "f"})
	for range words.LongQueue {
		whole.Queue.Waiters = append(whole.Queue.Waiters, waiterRow{Name: "b"},
			waiterRow{Name: "f"}, waiterRow{Name: "elected", info: standby})
	}
	for name, c := range map[string]struct {
		by   filter
		want string
	}{
		"no match": {filter{order: "trouble", waited: true}, ""},
		"trouble":  {filter{order: "trouble"}, "d c f b a elected"},
		"name":     {filter{order: "name"}, "a b c d elected f"},
		"held":     {filter{order: "held"}, "b a elected c d f"},
		"ping":     {filter{order: "ping"}, "c a b d elected f"},
		"queue":    {filter{order: "queue"}, "f b elected d a c"},
		"silent":   {filter{order: "trouble", silent: true}, "d c"},
		"waited":   {filter{order: "trouble", waited: true}, "d f b elected"},
	} {
		l := whole
		if c.want == "" {
			l = unwaited
		}
		c.by.apply(&l)
		if got := strings.Join(l.names(), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		want := map[string]int{"b": words.LongQueue, "d": 1, "elected": words.LongQueue,
			"f": words.LongQueue + 1}
		maps.DeleteFunc(want, func(name string, _ int) bool {
			return !slices.Contains(strings.Fields(c.want), name)
		})
		got := map[string]int{}
		for _, w := range l.Queue.Waiters {
			got[w.Name]++
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: waiters %v, want %v", name, got, want)
		}
		if (l.empty != "") != (c.want == "") {
			t.Errorf("%s: it says %q", name, l.empty)
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
// If all locks are filtered out, it still prints the table of waiters.
func TestLocks_OnATerminal_TroubleIsLast(t *testing.T) {
	t.Parallel()
	whole := newListing("db")
	dead := distlock.LockInfo{Held: true, Condemned: true}
	whole.Locks = []row{{Name: "alive"}, {Name: "dead", Held: true, info: dead}, {Name: "fine"}}
	whole.Queue.Waiters = []waiterRow{{Name: "alive"}, {Name: "fine"}}
	print := func(l listing) []string {
		(&filter{order: "trouble"}).apply(&l)
		var out strings.Builder
		l.print(&out, layout(80))
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	lines := print(whole)
	if n := len(lines); n < 3 || !strings.HasPrefix(lines[n-3], "dead ") ||
		lines[n-1] != "3 locks, 1 in trouble, 2 waiters" {
		t.Errorf("the screen ends with\n%s", strings.Join(lines, "\n"))
	}
	whole.Locks, whole.empty = nil, "no lock is held"
	if text := strings.Join(print(whole), "\n"); !strings.HasPrefix(text, "no lock is held") ||
		strings.Count(text, "alive") != 1 || strings.Count(text, "fine") != 1 {
		t.Errorf("without a lock:\n%s", text)
	}
}
