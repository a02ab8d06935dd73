package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/cmd/internal/words"
)

// names returns the names of the locks of a listing, each once, in its order.
func (l listing) names() (all []string) {
	for _, r := range l.Locks {
		all = append(all, r.Name)
	}
	return slices.Compact(all)
}

// It tries to break: trouble comes first, then the requested order; filters remove all other locks,
// with their queues.
func TestSieve_OrdersAndFilters(t *testing.T) {
	t.Parallel()
	ms := func(n int64) *int64 { return &n }
	whole := newListing("db")
	whole.Locks = []row{
		{Name: "a", Held: true, HeldForMS: ms(5), PingAgeMS: ms(9)},
		{Name: "b", Held: true, HeldForMS: ms(9), Waiters: words.LongQueue},
		{Name: "c", Held: true, HeldForMS: ms(1), PingAgeMS: ms(20), suspect: true},
		{Name: "c", Held: true, HeldForMS: ms(2), PingAgeMS: ms(2)},
		{Name: "elected", Held: true, HeldForMS: ms(3), Waiters: words.LongQueue},
	}
	for range words.LongQueue {
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
		"queue":   {sieve{order: "queue"}, "b elected a c"},
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
		if lines := len(l.Line.Waiters); lines != words.LongQueue*(strings.Count(c.want, "b")+
			strings.Count(c.want, "elected")) {
			t.Errorf("%s: %d wait", name, lines)
		}
		if (l.void != "") != (c.want == "") {
			t.Errorf("%s: it says %q", name, l.void)
		}
	}
}

// It tries to break: `locks` sorts by trouble as text and by name as JSON, and the error for an
// unknown order lists the valid ones.
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
	b.cli("locks", "--sort", "size").want(t, exitUsage, "trouble, name, held, ping, queue")
	b.share("pool", catalog.Permit, 2, bson.A{party("p:1:1:a", "", catalog.Permit, 0, 0),
		party("p:1:1:a", "", catalog.Permit, 0, 0)}, bson.A{})
	b.cli("locks", "--waited").want(t, 0, "none of 8 locks matches")
}
