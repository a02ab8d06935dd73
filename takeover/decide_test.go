package takeover_test

import (
	"strings"
	"testing"
	"time"

	"mongodlm/internal/test/assert"
	"mongodlm/takeover"
)

func broken(e *takeover.Evidence) {
	e.Malformed = `malformed document locks "balancer": field "state" must be a whole number`
}

func doomed(e *takeover.Evidence) { e.Condemned = "by db9:1:1:x: unchanged for 15m0s" }

func free(e *takeover.Evidence) { e.Held = false }

// The verdicts have an order: malformed, free, condemned, then the rest.
func TestDecide_OrderOfAnswers(t *testing.T) {
	t.Parallel()
	check(t, []row{
		{
			name: "no document", first: takeover.Evidence{Name: "balancer", Sent: origin},
			verdict: takeover.Free, says: "lock is free",
		},
		{name: "free document", first: look(night, free), verdict: takeover.Free},
		{
			name: "freed during the watch", first: look(0), now: look(time.Minute, free),
			verdict: takeover.Free,
		},
		{ // F15
			name: "malformed", first: look(night, broken), verdict: takeover.Malformed,
			says: `field "state" must be a whole number; never taken over until somebody repairs`,
		},
		{
			name: "malformed and free", first: look(night, broken, free),
			verdict: takeover.Malformed,
		},
		{
			name: "malformed and condemned", first: look(night, broken, doomed),
			verdict: takeover.Malformed,
		},
		{
			name: "malformed after the takeover time", first: look(0), now: look(night, broken),
			verdict: takeover.Malformed,
		},
		{
			name:  "malformed with control characters",
			first: look(0, func(e *takeover.Evidence) { e.Malformed = "a\n\x1b[2J\u202eb" }),
			says:  `a\u000a\u001b[2J\u202eb;`, verdict: takeover.Malformed,
		},
		{ // C4
			name: "condemned at the first look", first: look(0, doomed),
			verdict: takeover.Take, rule: "condemned", says: "is condemned: by db9:1:1:x",
		},
		{ // C4
			name: "condemned although the ping is fresh", first: look(time.Second, doomed),
			verdict: takeover.Take, rule: "condemned",
		},
		{ // C4
			name: "condemned during the watch", first: look(0), now: look(time.Minute, doomed),
			verdict: takeover.Take, rule: "condemned",
		},
		{
			name:  "condemned after another primary answered",
			first: look(0), now: look(time.Minute, doomed, primary("term 2")),
			verdict: takeover.Take, rule: "condemned",
		},
		{
			name: "condemned, watch only", first: look(0, doomed),
			policy:  policy(mode(takeover.WatchOnly)),
			verdict: takeover.Take, rule: "condemned",
		},
		{
			name: "condemned but free", first: look(0, doomed, free), verdict: takeover.Free,
		},
		{
			name:   "condemned, policy not valid",
			policy: takeover.Policy{Rule: 9}, first: look(0, doomed),
			verdict: takeover.Take, rule: "condemned",
		},
	})
}

// A policy that was not validated takes no lock, even with a takeover time of zero.
func TestDecide_PolicyNotValid(t *testing.T) {
	t.Parallel()
	check(t, []row{
		{
			name: "zero takeover time", first: look(0), now: look(night),
			policy: takeover.Policy{Rule: takeover.WatchOnly}, verdict: takeover.Watch,
			remaining: limit, says: "Takeover must be positive",
		},
		{
			name: "negative takeover time", now: look(night),
			first:   look(0, noPing, func(e *takeover.Evidence) { e.Recorded = -1 }),
			policy:  policy(func(p *takeover.Policy) { p.Takeover = -limit }),
			verdict: takeover.Watch, remaining: limit,
		},
		{
			name: "unknown mode", first: look(0), now: look(night), policy: policy(mode(2)),
			verdict: takeover.Watch, remaining: limit, says: "Rule must be",
		},
	})
}

// F14: a missing ping document is watched. Three generations of mongos gave three verdicts.
func TestDecide_NoPingDocument(t *testing.T) {
	t.Parallel()
	nameless := func(e *takeover.Evidence) { e.Process = "" }
	long := func(e *takeover.Evidence) { e.Recorded = time.Hour }
	unrecorded := func(e *takeover.Evidence) { e.Recorded = 0 }
	patient := policy(func(p *takeover.Policy) { p.ForeignTakeover = time.Hour })
	check(t, []row{
		{
			name: "first look", first: look(night, noPing), verdict: takeover.Watch,
			remaining: limit, says: "absence of a ping document of \"db1:4711:",
		},
		{
			name: "absent for all but a moment", first: look(0, noPing),
			now: look(limit+trip-1, noPing), verdict: takeover.Watch, remaining: 1,
		},
		{
			name: "absent for the takeover time", first: look(0, noPing),
			now: look(limit+trip, noPing), verdict: takeover.Take, rule: "watch",
		},
		{
			name: "absent, holder recorded a longer time", first: look(0, noPing, long),
			now: look(limit+trip, noPing, long), verdict: takeover.Watch,
			remaining: time.Hour - limit,
		},
		{
			name:  "absent, holder recorded a longer time, and it passed",
			first: look(0, noPing, long), now: look(time.Hour+trip, noPing, long),
			verdict: takeover.Take, rule: "watch",
		},
		{ // it has recorded its own time, so it is one of ours
			name: "absent, longer foreign takeover time", first: look(0, noPing),
			now: look(limit+trip, noPing), verdict: takeover.Take, rule: "watch",
			policy: patient,
		},
		{
			name: "absent, and nothing recorded", first: look(0, noPing, unrecorded),
			now: look(limit+trip, noPing, unrecorded), verdict: takeover.Watch,
			remaining: time.Hour - limit, policy: patient,
		},
		{
			name:  "absent, and nothing recorded, for the foreign takeover time",
			first: look(0, noPing, unrecorded), now: look(time.Hour+trip, noPing, unrecorded),
			verdict: takeover.Take, rule: "watch", policy: patient,
		},
		{
			name: "ping document appears", first: look(0, noPing), now: look(limit + trip),
			verdict: takeover.Watch, remaining: limit, restart: true, says: "has appeared",
		},
		{
			name: "ping document disappears", first: look(0), now: look(limit+trip, noPing),
			verdict: takeover.Watch, remaining: limit, restart: true, says: "has gone",
		},
		{ // F5
			name: "no process id", first: look(0, noPing, nameless),
			now: look(limit+trip, noPing, nameless), verdict: takeover.Take, rule: "watch",
			says: `lock "balancer" of a holder without a process id unchanged for 15m0s`,
		},
		{ // F5: the absence of a nameless holder's ping proves nothing for another lock
			name: "no process id, another lock", first: look(0, noPing, nameless),
			now: look(limit+trip, noPing, nameless, named("shard")), verdict: takeover.Watch,
			remaining: limit, restart: true, says: `of lock "balancer"`,
		},
		{ // a mongos may acquire before its first ping
			name: "absent, another lock", first: look(0, noPing),
			now: look(limit+trip, noPing, named("shard")), verdict: takeover.Watch,
			remaining: limit, restart: true,
		},
	})
}

func named(name string) edit { return func(e *takeover.Evidence) { e.Name = name } }

func TestDecide_Reason_EscapesForeignText(t *testing.T) {
	t.Parallel()
	nasty := func(e *takeover.Evidence) {
		e.Process = "a\"b\n\x1b[31m\u200b\u202e\xff" + strings.Repeat("x", 5000)
		e.Name = "c\x00d"
		e.Primary = "e\rf"
	}
	for name, now := range map[string]takeover.Evidence{
		"held":      look(time.Second, nasty),
		"watch":     look(limit/2, nasty),
		"take":      look(night, nasty),
		"skewed":    look(night, nasty, wallOff(time.Hour)),
		"no ping":   look(night, nasty, noPing),
		"condemned": look(0, nasty, doomed),
		"restart":   look(night, nasty, primary("x\ny")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := takeover.Decide(look(0, nasty), now, policy())
			checkReason(t, got.Reason)
			if len(got.Reason) > 2000 {
				t.Errorf("reason has %d bytes", len(got.Reason))
			}
		})
	}
}

// Rule 4: a mark counts at the first read for a holder of ours, and never for a foreign holder.
func TestEvidence_Foreign(t *testing.T) {
	t.Parallel()
	unrecorded := func(e *takeover.Evidence) { e.Recorded = 0 }
	noSeq := func(e *takeover.Evidence) { e.Seq, e.HasSeq = 0, false }
	nameless := func(e *takeover.Evidence) { e.Process = "" }
	for name, c := range map[string]struct {
		e            takeover.Evidence
		want, marked bool // without a mark, and with one
	}{
		"pings with seq":                     {look(0), false, false},
		"pings with seq, nothing recorded":   {look(0, unrecorded), false, false},
		"no ping, a time recorded":           {look(0, noPing), false, false},
		"no ping, nothing recorded":          {look(0, noPing, unrecorded), true, true},
		"no ping, no process":                {look(0, noPing, nameless), true, true},
		"pings as a mongos":                  {look(0, foreign), true, true},
		"pings without seq, a time recorded": {look(0, noSeq), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			marked := c.e
			doomed(&marked)
			assert.Equal(t, c.e.Foreign(), c.want, "want %[2]v, got %[1]v")
			if got := marked.Foreign(); marked.HasPing && got != c.marked {
				t.Errorf("with a mark: want %v, got %v", c.marked, got)
			}
			d := takeover.Decide(marked, marked, policy())
			if taken := d.Verdict == takeover.Take; marked.HasPing && taken == c.marked {
				t.Errorf("with a mark: %+v", d)
			}
		})
	}
}

func TestPolicy_Validate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		policy takeover.Policy
		names  []string // fields that the error names; nil if the policy is valid
	}{
		{"defaults of mongos", policy(), nil},
		{"watch only", policy(mode(takeover.WatchOnly)), nil},
		{"no skew allowed", policy(func(p *takeover.Policy) { p.MaxClockSkew = 0 }), nil},
		{"zero", takeover.Policy{}, []string{
			"Takeover", "ForeignTakeover", "PingInterval", "MaxGap", "MaxClockSkew",
		}},
		{"everything wrong", takeover.Policy{-1, -1, -1, -1, -1, -1}, []string{
			"Takeover", "ForeignTakeover", "PingInterval", "MaxGap", "MaxClockSkew", "Rule",
		}},
		{
			"takeover time negative", policy(func(p *takeover.Policy) { p.Takeover = -time.Second }),
			[]string{"Takeover must be positive, not -1s", "MaxClockSkew"},
		},
		{
			"skew as long as the takeover time",
			policy(func(p *takeover.Policy) { p.MaxClockSkew = limit }),
			[]string{"MaxClockSkew must be at least 0 and less than Takeover (15m0s), not 15m0s"},
		},
		{"mode too large", policy(mode(2)), []string{"Rule"}},
		{"mode negative", policy(mode(-1)), []string{"Rule"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := c.policy.Validate()
			if (err == nil) != (len(c.names) == 0) {
				t.Fatalf("fields to name: %q, got %v", c.names, err)
			}
			for _, name := range c.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("want %q in %q", name, err)
				}
			}
			if err != nil {
				checkReason(t, err.Error())
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for v := takeover.Free; v <= takeover.Malformed+1; v++ {
		seen[v.String()] = true
	}
	for m := takeover.Witnesses; m <= takeover.WatchOnly+1; m++ {
		seen[m.String()] = true
	}
	// "watch only" and "watch" differ, as do all other names.
	if want := 10; len(seen) != want {
		t.Errorf("want %d different names, got %v", want, seen)
	}
}
