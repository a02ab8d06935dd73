package takeover_test

import (
	"strings"
	"testing"
	"time"

	"mongodlm/takeover"
)

func TestPolicy_Validate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		policy takeover.Policy
		names  []string // fields that the error names; none: valid
	}{
		{"defaults of mongos", policy(), nil},
		{"watch only", policy(mode(takeover.WatchOnly)), nil},
		{"at once", policy(mode(takeover.TakeAtOnce)), nil},
		{"no skew allowed", policy(func(p *takeover.Policy) { p.MaxClockSkew = 0 }), nil},
		{"zero", takeover.Policy{}, []string{
			"Takeover", "ForeignTakeover", "PingInterval", "MaxGap", "MaxClockSkew",
		}},
		{"everything wrong", takeover.Policy{-1, -1, -1, -1, -1, -1, true}, []string{
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
		{"mode too large", policy(mode(3)), []string{"Rule"}},
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
	for m := takeover.Witnesses; m <= takeover.TakeAtOnce+1; m++ {
		seen[m.String()] = true
	}
	// "watch only" and "watch" differ; so do all others.
	if want := 12; len(seen) != want {
		t.Errorf("want %d different names, got %v", want, seen)
	}
}
