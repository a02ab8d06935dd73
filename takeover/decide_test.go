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

// Decide checks first whether a document is malformed, then whether the lock is free, and then
// whether the holder is condemned.
func TestDecide_OrderOfAnswers(t *testing.T) {
	t.Parallel()
	odd := func(e *takeover.Evidence) { e.Malformed = "a\n\x1b[2J\u202eb" }
	another := look(time.Minute, doomed, primary("term 2"))
	check(t, []row{
		once("no document", unheld, 0, takeover.Evidence{Name: "balancer", Sent: origin}).
			saying("lock is free"),
		once("free document", unheld, 0, look(night, free)),
		once("malformed", unread, 0, look(night, broken)). // F15
									saying(`field "state" must be a whole number; never taken over until an operator`),
		once("malformed and free", unread, 0, look(night, broken, free)),
		later("malformed after the takeover time", unread, 0, look(0), look(night, broken)),
		once("malformed with control characters", unread, 0, look(0, odd)).
			saying(`a\u000a\u001b[2J\u202eb;`),
		takes("condemned at the first read", "condemned", look(0, doomed), look(0, doomed)).
			saying("is condemned: by db9:1:1:x"), // C4
		takes("condemned although the ping is fresh", "condemned", look(0), look(time.Second, doomed)),
		takes("condemned during the watch", "condemned", look(0), look(time.Minute, doomed)),
		takes("condemned after another primary answered", "condemned", look(0), another),
		takes("condemned, policy not valid", "condemned", look(0, doomed), look(0, doomed)).
			by(takeover.Policy{Rule: 9}),
		once("condemned but free", unheld, 0, look(0, doomed, free)),
	})
}

// If the policy is invalid, Decide takes no lock, even with a takeover time of zero.
func TestDecide_PolicyNotValid(t *testing.T) {
	t.Parallel()
	negative := func(e *takeover.Evidence) { e.Recorded = -1 }
	check(t, []row{
		later("zero takeover time", watched, limit, look(0), look(night)).
			by(takeover.Policy{Rule: takeover.WatchOnly}).saying("Takeover must be positive"),
		later("negative takeover time", watched, limit, look(0, noPing, negative), look(night)).
			by(policy(func(p *takeover.Policy) { p.Takeover = -limit })),
		later("unknown mode", watched, limit, look(0), look(night)).by(policy(mode(2))).
			saying("Rule must be"),
	})
}

// A contender watches a holder whose ping document is missing.
func TestDecide_NoPingDocument(t *testing.T) { // F14
	t.Parallel()
	nameless := func(e *takeover.Evidence) { e.Process = "" }
	long := func(e *takeover.Evidence) { e.Recorded = time.Hour }
	unrecorded := func(e *takeover.Evidence) { e.Recorded = 0 }
	patient := policy(func(p *takeover.Policy) { p.ForeignTakeover = time.Hour })
	due := limit + trip
	check(t, []row{
		once("first read", watched, limit, look(night, noPing)).
			saying("absence of a ping document of \"db1:4711:"),
		later("absent for all but a moment", watched, 1, look(0, noPing), look(due-1, noPing)),
		takes("absent for the takeover time", "watch", look(0, noPing), look(due, noPing)),
		later("absent, holder recorded a longer time", watched, time.Hour-limit,
			look(0, noPing, long), look(due, noPing, long)),
		takes("absent, holder recorded a longer time, and it passed", "watch",
			look(0, noPing, long), look(time.Hour+trip, noPing, long)),
		// The holder has recorded its takeover time, so it is not foreign.
		takes("absent, longer foreign takeover time", "watch", look(0, noPing), look(due, noPing)).
			by(patient),
		later("absent, and nothing recorded", watched, time.Hour-limit,
			look(0, noPing, unrecorded), look(due, noPing, unrecorded)).by(patient),
		takes("absent, and nothing recorded, for the foreign takeover time", "watch",
			look(0, noPing, unrecorded), look(time.Hour+trip, noPing, unrecorded)).by(patient),
		later("ping document appears", watched, limit, look(0, noPing), look(due)).anew().
			saying("has appeared"),
		later("ping document disappears", watched, limit, look(0), look(due, noPing)).anew().
			saying("has gone"),
		takes("no process id", "watch", look(0, noPing, nameless), look(due, noPing, nameless)).
			saying(`lock "balancer" of a holder without a process id unchanged for 15m0s`), // F5
		// A holder without a process id is watched for each lock separately.
		later("no process id, another lock", watched, limit, look(0, noPing, nameless),
			look(due, noPing, nameless, named("shard"))).anew().saying(`of lock "balancer"`), // F5
		// A mongos may acquire a lock before its first ping.
		later("absent, another lock", watched, limit, look(0, noPing),
			look(due, noPing, named("shard"))).anew(),
	})
}

func named(name string) edit { return func(e *takeover.Evidence) { e.Name = name } }

// If the ping of a distlock process is condemned, its lock is taken at the first read. If the ping
// of a foreign holder is condemned, its lock is not taken at the first read.
func TestEvidence_Foreign(t *testing.T) {
	t.Parallel()
	unrecorded := func(e *takeover.Evidence) { e.Recorded = 0 }
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
		{"watch only", policy(mode(takeover.WatchOnly)), nil},
		{"no skew allowed", policy(func(p *takeover.Policy) { p.MaxClockSkew = 0 }), nil},
		{"zero", takeover.Policy{}, []string{
			"Takeover", "ForeignTakeover", "PingInterval", "MaxGap", "MaxClockSkew",
		}},
		{"everything wrong", takeover.Policy{-1, -1, -1, -1, -1, -1}, []string{
			"Takeover", "ForeignTakeover", "PingInterval", "MaxGap", "MaxClockSkew", "Rule",
		}},
		{
			"skew as long as the takeover time",
			policy(func(p *takeover.Policy) { p.MaxClockSkew = limit }),
			[]string{"MaxClockSkew must be at least 0 and less than Takeover (15m0s), not 15m0s"},
		},
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
