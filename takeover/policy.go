package takeover

import (
	"fmt"
	"strings"
	"time"
)

// Validate reports every field that is out of range, all in one error of one line, or nil.
// Takeover, ForeignTakeover, PingInterval and MaxGap must be positive, MaxClockSkew must be at
// least zero and less than Takeover, Rule one of the two.
func (p Policy) Validate() error {
	var broken []string
	positive := func(field string, d time.Duration) {
		if d <= 0 {
			broken = append(broken, fmt.Sprintf("%s must be positive, not %v", field, d))
		}
	}
	positive("Takeover", p.Takeover)
	positive("ForeignTakeover", p.ForeignTakeover)
	positive("PingInterval", p.PingInterval)
	positive("MaxGap", p.MaxGap)
	if p.MaxClockSkew < 0 || p.MaxClockSkew >= p.Takeover {
		broken = append(broken, fmt.Sprintf(
			"MaxClockSkew must be at least 0 and less than Takeover (%v), not %v",
			p.Takeover, p.MaxClockSkew))
	}
	if p.Rule < Witnesses || p.Rule > WatchOnly {
		broken = append(broken, fmt.Sprintf(
			"Rule must be Witnesses or WatchOnly, not %d", int(p.Rule)))
	}
	if broken == nil {
		return nil
	}
	return fmt.Errorf("takeover: policy is not valid: %s", strings.Join(broken, "; "))
}

// OfLease returns the policy for a lease of that life: it takes the place of the contender's own
// takeover time, and clocks may differ by the same share of it. The other fields stay as they are.
func (p Policy) OfLease(life time.Duration) Policy {
	if p.Takeover > 0 {
		p.MaxClockSkew = time.Duration(float64(p.MaxClockSkew) / float64(p.Takeover) * float64(life))
	}
	p.Takeover = life
	return p
}

// String returns the rule's name as a configuration writes it.
func (r Rule) String() string {
	switch r {
	case Witnesses:
		return "witnesses"
	case WatchOnly:
		return "watch only"
	default:
		return fmt.Sprintf("rule %d", int(r))
	}
}
