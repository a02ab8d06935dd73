package outlook_test

import (
	"testing"
	"time"

	"mongodlm/cmd/internal/outlook"
	"mongodlm/distlock"
	"mongodlm/internal/test/effort"
)

func TestMain(m *testing.M) { effort.Main(m) }

// The forecast for a dead holder agrees with the takeover rules.
func TestForesee_Rules(t *testing.T) {
	t.Parallel()
	const none = -1
	alive := distlock.LockInfo{Process: "p", Held: true, HasPing: true, Takeover: time.Minute,
		PingEvery: 5 * time.Second, PingAge: 3 * time.Second, LeaseAge: -1}
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
		"silent, slow pings": {with(
			func(i *distlock.LockInfo) { i.PingAge, i.PingEvery = time.Hour, 50*time.Second }), "watch", 0,
			0, 60},
		"condemned": {with(func(i *distlock.LockInfo) { i.Condemned = true }), "condemned", 0, 0, 0},
		"no ping": {with(func(i *distlock.LockInfo) { i.HasPing, i.PingAge = false, -1 }),
			"watch", none, 0, 60},
		"ping of unknown age": {with(func(i *distlock.LockInfo) { i.PingAge = -1 }), "watch", none, 0,
			60},
		"foreign": {with(func(i *distlock.LockInfo) { i.Foreign, i.Takeover = true, 0 }), "watch", none,
			897, 900},
		"nothing recorded": {with(func(i *distlock.LockInfo) { i.Takeover = 0 }),
			"witnesses", 672, 897, 900},
		"bad ping": {with(func(i *distlock.LockInfo) { i.BadPing = &distlock.MalformedError{} }), "never",
			none, none, none},
		"lease ends first": {with(
			func(i *distlock.LockInfo) { i.Lease, i.LeaseAge = 20*time.Second, 4*time.Second }), "lease", 11,
			16, 20},
		"ping ends first": {with(func(i *distlock.LockInfo) { i.Lease, i.LeaseAge = time.Hour, 0 }),
			"witnesses", 42, 57, 60},
	} {
		o := outlook.Foresee(c.of, 0, nil)
		seconds := func(ms *int64) float64 {
			if ms == nil {
				return none
			}
			return float64(*ms) / 1000
		}
		if o.Rule != c.rule || seconds(o.LostInMS) != c.lost ||
			seconds(o.EarliestMS) != c.earliest || seconds(o.LatestMS) != c.latest {
			t.Errorf("%s: rule %s, lost in %v, taken in %v to %v s; want %s, %v, %v to %v", name, o.Rule,
				seconds(o.LostInMS), seconds(o.EarliestMS), seconds(o.LatestMS), c.rule, c.lost, c.earliest,
				c.latest)
		}
	}
}

// The forecast skips dead waiters and names the first live waiter. If a live waiter already watches
// the holder, the takeover is earlier. The times agree with package takeover.
func TestForesee_DeadWaiters_AreLeftOut(t *testing.T) {
	t.Parallel()
	at := func(process string, waited, ping time.Duration,
		change ...func(*distlock.LockInfo)) distlock.LockInfo {
		i := distlock.LockInfo{Process: process, Place: 1, HasPing: true, Takeover: 12 * time.Second,
			PingEvery: 2 * time.Second, Age: waited, PingAge: ping, LeaseAge: -1}
		for _, c := range change {
			c(&i)
		}
		return i
	}
	condemned := func(i *distlock.LockInfo) { i.Condemned = true }
	leased := func(i *distlock.LockInfo) { i.Lease, i.LeaseAge = 5*time.Second, time.Second }
	type queue = []distlock.LockInfo
	for name, c := range map[string]struct {
		holder   distlock.LockInfo
		queue    queue
		next     string
		passed   int
		rule     string
		earliest time.Duration
	}{
		"watched for long": {at("h", 0, 10*time.Second), queue{at("a", time.Minute, 0)}, "a", 0, "watch",
			2 * time.Second},
		"silent, watched": {at("h", 0, 15*time.Second), queue{at("a", 4*time.Second, 0)}, "a",
			0, "witnesses", 2 * time.Second},
		"silent, watched out": {at("h", 0, 15*time.Second), queue{at("a", 6*time.Second, 0)}, "a", 0,
			"witnesses", 0},
		"silent, just come": {at("h", 0, 15*time.Second), queue{at("a", 0, 0)}, "a", 0, "witnesses",
			6 * time.Second},
		"slow pings": {at("h", 0, 15*time.Second,
			func(i *distlock.LockInfo) { i.PingEvery = 9 * time.Second }), queue{at("a", 5*time.Second, 0)},
			"a", 0, "watch", 7 * time.Second},
		"own process waits too": {at("h", 0, 15*time.Second), queue{at("h", time.Minute, 15*time.Second),
			at("a", 4*time.Second, 0)}, "a", 1, "witnesses", 2 * time.Second},
		"dead ones before": {at("h", 0, 15*time.Second), queue{at("d", time.Minute, 5*time.Second),
			at("c", time.Minute, time.Second, condemned), at("a", 4*time.Second, 0)}, "a", 2, "witnesses",
			2 * time.Second},
		"only dead ones": {at("h", 0, 15*time.Second), queue{at("d", time.Minute, 5*time.Second)}, "", 1,
			"witnesses", 6 * time.Second},
		"a lease of a living process": {at("h", 0, time.Second, leased),
			queue{at("h", time.Minute, time.Second)}, "h", 0, "lease", 4 * time.Second},
	} {
		o := outlook.Foresee(c.holder, 0, c.queue)
		if o.Next != c.next || o.Passed != c.passed || o.Rule != c.rule ||
			time.Duration(*o.EarliestMS)*time.Millisecond != c.earliest {
			t.Errorf("%s: %q next, %d passed over, rule %s, in %v; want %q, %d, %s, %v", name, o.Next,
				o.Passed, o.Rule, time.Duration(*o.EarliestMS)*time.Millisecond, c.next, c.passed, c.rule,
				c.earliest)
		}
	}
}
