package main

import (
	"strconv"
	"strings"
	"time"
)

// forever is the value of --wait for a wait without a limit. The flag without a value means the
// same.
const forever = "forever"

// patience is the flag for the wait limit. Its value is optional.
type patience struct {
	limit   time.Duration
	forever bool
}

// String returns the value in the syntax of the flag. It is empty if the limit is 0.
func (p *patience) String() string {
	switch {
	case p.forever:
		return forever
	case p.limit == 0:
		return ""
	}
	return p.limit.String()
}

// Set parses a value.
func (p *patience) Set(value string) (err error) {
	p.forever, p.limit = value == forever, 0
	if !p.forever {
		p.limit, err = time.ParseDuration(value)
	}
	return err
}

// A days is a duration that may begin with days, such as 7d or 1d12h.
type days time.Duration

// String returns the value in the syntax of the flag. It is empty for 0.
func (d *days) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

// Set parses a value.
func (d *days) Set(value string) error {
	whole, rest, found := strings.Cut(value, "d")
	if !found {
		whole, rest = "0", value
	}
	n, err := strconv.ParseInt(whole, 10, 32)
	part := time.Duration(0)
	if err == nil && (rest != "" || !found) {
		part, err = time.ParseDuration(rest)
	}
	if most := int64(100 * 365); err == nil && (n > most || n < -most) {
		err = strconv.ErrRange
	}
	*d = days(time.Duration(n)*24*time.Hour + part)
	return err
}

// Type returns the name of the type for [wrongFlag].
func (d *days) Type() string { return "days" }

// Type returns the name of the type for [wrongFlag].
func (p *patience) Type() string { return "patience" }
