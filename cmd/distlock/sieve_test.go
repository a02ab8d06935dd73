package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/words"
	"mongodlm/internal/test/assert"
)

// names are those of the locks of a listing, each once, in its order.
func (l listing) names() (all []string) {
	for _, r := range l.Locks {
		all = append(all, r.Name)
	}
	return slices.Compact(all)
}

// It tries to break: trouble comes first, then the order that was asked for; filters leave the rest
// out, line and all.
func TestSieve_OrdersAndFilters(t *testing.T) {
	t.Parallel()
	ms := func(n int64) *int64 { return &n }
	whole := newListing("db")
	whole.Locks = []row{
		{Name: "a", Held: true, HeldForMS: ms(5), PingAgeMS: ms(9)},
		{Name: "b", Held: true, HeldForMS: ms(9), Waiters: words.LongLine},
		{Name: "c", Held: true, HeldForMS: ms(1), PingAgeMS: ms(20), suspect: true},
		{Name: "c", Held: true, HeldForMS: ms(2), PingAgeMS: ms(2)},
		{Name: "elected", Held: true, HeldForMS: ms(3), Waiters: words.LongLine},
	}
	for range words.LongLine {
		whole.Line.Waiters = append(whole.Line.Waiters, waiterRow{Name: "b"},
			waiterRow{Name: "elected", standsBy: true})
	}
	for name, c := range map[string]struct {
		by   sieve
		want string
	}{
		"trouble": {sieve{order: "trouble"}, "c b a elected"},
		"name":    {sieve{order: "name"}, "a b c elected"},
		"held":    {sieve{order: "held"}, "b a elected c"},
		"ping":    {sieve{order: "ping"}, "c a b elected"},
		"line":    {sieve{order: "line"}, "b elected a c"},
		"silent":  {sieve{order: "trouble", silent: true}, "c"},
		"waited":  {sieve{order: "trouble", waited: true}, "b elected"},
		"part":    {sieve{order: "trouble", part: "lect"}, "elected"},
		"none":    {sieve{order: "trouble", part: "x"}, ""},
	} {
		l := whole
		c.by.sift(&l)
		if got := strings.Join(l.names(), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if lines := len(l.Line.Waiters); lines != words.LongLine*(strings.Count(c.want, "b")+
			strings.Count(c.want, "elected")) {
			t.Errorf("%s: %d wait", name, lines)
		}
		if (l.void != "") != (c.want == "") {
			t.Errorf("%s: it says %q", name, l.void)
		}
	}
}

// It tries to break: a watch for what is in trouble tells when a lock gets there and when it
// leaves, as it is then, and nothing of others; no lock is told to be free that is held.
func TestDiary_Filtered_TellsWhoComesAndGoes(t *testing.T) {
	t.Parallel()
	var out, errOut strings.Builder
	d := &diary{out: &out, errOut: &errOut, sieve: sieve{silent: true, order: "name"}}
	look := func(marks ...string) {
		l := newListing("db")
		l.Locks = []row{{Name: "other", Process: "p:1:1:x", Session: "s", Fence: 1},
			{Name: "job", Process: "p:1:1:x", Session: "s", Fence: 1, Marks: marks, suspect: len(marks) > 0}}
		assert.Must(t, d.tell(time.Unix(0, 0), l, nil))
	}
	for _, marks := range [][]string{nil, {"silent"}, {"silent"}, nil, nil} {
		look(marks...)
	}
	if got := out.String(); strings.Count(got, "\n") != 3 || !strings.Contains(got,
		"none of 2 locks is like that\n") || strings.Count(got, `"job" held by p:1, fence 1`) != 2 ||
		strings.Contains(got, "free") || strings.Contains(got, "other") {
		t.Errorf("told:\n%s", got)
	}
}

// It tries to break: `locks` goes by trouble for a person and by name for a program, and says which
// orders there are.
func TestLocks_Order_TroubleForPeopleNamesForPrograms(t *testing.T) {
	b := newBase(t)
	fill(b)
	for want, args := range map[string][]string{
		"alive bad-ping condemned foreign free no-ping silent": {},
		"bad-ping condemned no-ping silent alive foreign free": {"--sort", "trouble"},
		"bad-ping condemned no-ping silent":                    {"--silent"},
	} {
		var got listing
		out := b.cli(append([]string{"locks", "--json"}, args...)...).want(t, 0).out
		if err := json.Unmarshal([]byte(out), &got); err != nil ||
			strings.Join(got.names(), " ") != want {
			t.Errorf("%v: %v, %v, want %s", args, got.names(), err, want)
		}
	}
	b.cli("locks", "--sort", "size").want(t, exitUsage, "trouble, name, held, ping, line")
	b.share("pool", catalog.Permit, 2, bson.A{party("p:1:1:a", "", catalog.Permit, 0, 0),
		party("p:1:1:a", "", catalog.Permit, 0, 0)}, bson.A{})
	b.cli("locks", "--waited").want(t, 0, "none of 8 locks is like that")
}

// It tries to break: a screen scrolls over all of a text and not beyond, and keys are told apart
// however they are read.
func TestFrame_Scrolls(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 31 {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	from := 0
	for _, c := range []struct {
		keys  string
		first int
	}{{"", 0}, {"j", 1}, {"\x1b[B\x1b[B", 3}, {"k", 2}, {"g\x1b[A", 0}, {" ", 10}, {"G", 22},
		{"j\x1b[6~", 22}, {"\x1b[5~", 12}} {
		for _, key := range split(c.keys) {
			_, from = frame(text.String(), 40, 10, scrolled(from, key))
		}
		drawn, first := frame(text.String(), 40, 10, from)
		if says := fmt.Sprintf("(lines %d to %d of 30)", c.first+1, c.first+8); first != c.first ||
			!strings.Contains(drawn, says) || !strings.HasPrefix(drawn, home+"line 0"+clearLine) ||
			!strings.Contains(drawn, fmt.Sprintf("line %d"+clearLine, c.first+8)) {
			t.Errorf("%q leads to %d, want %d: %q", c.keys, first, c.first, drawn)
		}
	}
}
