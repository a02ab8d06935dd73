package main

import "time"

// forever is the value of --wait for a wait without a bound, which is also meant when there is
// none.
const forever = "forever"

// patience is the flag that says how long to wait. Its value may be left out.
type patience struct {
	limit   time.Duration
	forever bool
}

// String is the value as it would be given; empty when nothing is waited for.
func (p *patience) String() string {
	switch {
	case p.forever:
		return forever
	case p.limit == 0:
		return ""
	}
	return p.limit.String()
}

// Set reads a value.
func (p *patience) Set(value string) (err error) {
	p.forever, p.limit = value == forever, 0
	if !p.forever {
		p.limit, err = time.ParseDuration(value)
	}
	return err
}

// Type is the word for it in [wrongFlag].
func (p *patience) Type() string { return "patience" }
