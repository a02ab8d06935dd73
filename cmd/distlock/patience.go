package main

import (
	"errors"
	"time"
)

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
func (p *patience) Set(value string) error {
	if !p.takes(value) && value != "true" { // which package flag says when there is none
		return errors.New("it must be a time such as 30s, or " + forever)
	}
	p.limit, _ = time.ParseDuration(value) // 0 when it is none
	p.forever = value == forever || value == "true"
	return nil
}

// IsBoolFlag tells package flag that the value may be left out.
func (p *patience) IsBoolFlag() bool { return true }

// takes reports whether a word is a value.
func (p *patience) takes(word string) bool {
	_, err := time.ParseDuration(word)
	return err == nil || word == forever
}
