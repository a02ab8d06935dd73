package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"mongodlm/catalog"
	"mongodlm/takeover"
)

// A standing is a holder or a waiter of a lock, with what is known of its process.
type standing struct {
	catalog.Party
	pulse catalog.Pulse
	now   time.Time // server's clock; zero when unknown
	held  bool      // it holds the lock, or waits; not the last holder of a free one
}

// holdersOf are the holders of a lock; of a free one the last holder, which stays readable.
func holdersOf(h catalog.Snapshot) []standing {
	l := *h.Lock
	parties := l.Holders()
	if !l.Held {
		l.Held, l.Sharers = true, nil
		parties = l.Holders()
	}
	return standings(h, parties, h.Lock.Held)
}

// waitersOf are those who wait for a lock, first come first.
func waitersOf(h catalog.Snapshot) []standing { return standings(h, h.Lock.Waiters, true) }

func standings(h catalog.Snapshot, parties []catalog.Party, held bool) []standing {
	var all []standing
	for _, p := range parties {
		s := standing{Party: p, pulse: h.Pulses[p.Process], now: h.ServerTime, held: held}
		if p.Process == h.Lock.Process {
			s.pulse = catalog.Pulse{Ping: h.Ping, Err: h.PingErr}
		}
		all = append(all, s)
	}
	return all
}

// pingAge is how old the ping of its process is by the server's clock; negative when unknown.
func (s standing) pingAge() time.Duration {
	if s.pulse.Ping == nil || s.now.IsZero() {
		return -1
	}
	return max(0, s.now.Sub(s.pulse.Ping.At))
}

// lasts is how long it has held the lock, or waited, by the server's clock; negative when unknown.
func (s standing) lasts() time.Duration {
	if s.Since.IsZero() || s.now.IsZero() {
		return -1
	}
	return max(0, s.now.Sub(s.Since))
}

// label is what who says beside the process: the caller inside it.
func (s standing) label() string { return strings.TrimPrefix(s.Who, s.Process+":") }

// holdersInWords says who holds a lock, in words that stay the same as long as that does.
func holdersInWords(h catalog.Snapshot) string {
	holders := holdersOf(h)
	if !h.Lock.Held || len(holders) == 0 {
		return "nobody holds it, but others wait"
	}
	first := holders[0]
	what := "held by "
	switch n := len(holders); {
	case first.Mode == catalog.Permit:
		what = permits(*h.Lock) + " are taken, one by "
	case n > 1:
		what = fmt.Sprintf("held by %d who share it, one is ", n)
	}
	what += shown(short(first.Process), 100)
	if first.Why != "" {
		what += fmt.Sprintf(" (%s)", shown(first.Why, 100))
	}
	what += " since " + instant(first.Since)
	if m := first.marks(); len(m) > 0 {
		what += ", " + strings.Join(m, ", ")
	}
	return what
}

// permits counts those of a semaphore.
func permits(l catalog.Lock) string {
	return fmt.Sprintf("%d of %d permits", len(l.Holders()), l.Limit)
}

// marks says what is peculiar about it; nothing for the last holder of a lock that is free.
func (s standing) marks() []string {
	m := []string{}
	ping := s.pulse.Ping
	switch {
	case !s.held:
		return m
	case s.pulse.Err != nil:
		return append(m, "bad ping")
	case ping == nil:
		return append(m, "no ping")
	}
	if s.foreign() {
		m = append(m, "foreign")
	}
	if ping.Condemned != nil {
		m = append(m, "condemned")
	}
	takeover := max(s.Takeover, ping.Takeover)
	if takeover == 0 {
		takeover = defaultTakeover
	}
	if s.pingAge() > takeover {
		m = append(m, "silent")
	}
	return m
}

// foreign reports whether a process that has a ping has left no trace of ours.
func (s standing) foreign() bool {
	e := takeover.Evidence{
		Process: s.Process, Recorded: s.Takeover, HasPing: true, HasSeq: s.pulse.Ping.HasSeq,
	}
	if mark := s.pulse.Ping.Condemned; mark != nil {
		e.Condemned = mark.By
	}
	return e.Foreign()
}

// mode is how a lock is held or asked for, in the words of package distlock.
func mode(m catalog.Mode) string {
	if m == catalog.Exclusive {
		return "exclusive"
	}
	return string(m)
}

// modeOf words a mode with its limit; a dash when there is none.
func modeOf(mode string, limit int32) string {
	if limit > 0 {
		return fmt.Sprintf("%s of %d", mode, limit)
	}
	return shown(mode, 20)
}

// milliseconds is a duration for JSON; nil when it is unknown, that is negative.
func milliseconds(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// duration is the opposite of milliseconds.
func duration(ms *int64) time.Duration {
	if ms == nil {
		return -1
	}
	return time.Duration(*ms) * time.Millisecond
}

// moment is a time for JSON; nil when it is unknown, that is zero.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// A problemList is the documents that cannot be understood, each once: a ping may serve many locks.
type problemList []problem

func (l *problemList) add(bad *catalog.MalformedError) {
	if bad == nil {
		return
	}
	if p := problemOf(bad); !slices.Contains(*l, p) {
		*l = append(*l, p)
	}
}
