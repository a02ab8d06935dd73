package takeover

import (
	"fmt"
	"strings"
	"time"
)

// Evidence is one read of a lock and of its holder's ping, with the readings of the reader's own
// clocks around it. It is plain data: the reader fills it in, and [Decide] judges it.
type Evidence struct {
	// Lock
	Name      string
	Held      bool          // false if the lock is free or has no document
	Malformed string        // why the lock or its ping cannot be understood, or ""
	Process   string        // holder's process id, or ""
	TS        [12]byte      // lock session
	Recorded  time.Duration // takeover time that the holder wrote into the lock document, or 0

	// Lease is set if one lock session is watched, not a process. Ping, Local and Seq then describe
	// the last renewal of the session's lease. PingTakeover is the life of the lease.
	Lease bool

	// Ping of the holder
	HasPing      bool
	Ping         time.Time     // server's clock at the last ping
	Local        time.Time     // holder's own clock at the last ping, zero if missing
	Seq          int64         // number that changes with every ping
	HasSeq       bool          // false if no process of ours has pinged, see Foreign
	PingInterval time.Duration // holder's ping interval, 0 if unknown
	PingTakeover time.Duration // holder's takeover time from the ping document, 0 if unknown
	Condemned    string        // the process that condemned the holder, and its reason, or ""
	Sight        Sight         // record of an earlier contender, never the reader's own

	// Clocks of the read
	Server     time.Time     // server's clock, zero if unknown
	Primary    string        // term of the server that answered, or ""
	Wall       time.Time     // reader's wall clock at the reply
	Sent       time.Duration // reader's monotonic clock before the read was sent
	Received   time.Duration // reader's monotonic clock at the reply
	LongestGap time.Duration // longest pause between two reads of a watch, set by Observation
}

// Foreign reports whether the holder may be foreign: a mongos, or MongoDB's own lock manager. Such
// a holder reads no mark, so it cannot be condemned and may be alive with a mark. It checks no
// deadline. Its next start may have the same id. So it is watched for the foreign takeover time, by
// the watch rule alone, and no contender writes into its ping.
//
// A process of ours leaves traces that a foreign process does not leave: seq in the ping, and a
// recorded takeover time in its lock or in its queue entry. If the ping was removed, the recorded
// time remains. A ping without seq belongs to a foreign holder. The only exception is the condemned
// ping that a contender of ours inserts for a holder of ours.
//
// When a foreign manager takes a lock, the fields of an earlier holder of ours stay. The reader of
// the document must then leave Recorded zero. ParseLock of package catalog does so, by the state.
func (e Evidence) Foreign() bool {
	switch {
	case e.HasPing && e.HasSeq:
		return false
	case e.Process == "" || e.Recorded <= 0:
		return true
	default:
		return e.HasPing && e.Condemned == ""
	}
}

// A Subject is the thing that one [Observation] watches. See [Evidence.Subject].
type Subject struct {
	Process string
	Lock    string   // empty if the watch serves every lock of the process
	Session [12]byte // session of a lease; zero otherwise
}

// Subject returns the key under which a caller keeps the [Observation] of this evidence. A holder
// with a seq is watched once for all its locks and queue entries, because none of its guards
// outlives its ping. A foreign holder, a holder without a ping document and a holder without a
// process id are watched per lock, as in mongos. A mongos may acquire even if its ping is not
// current. A lease is watched for its own lock session. Each read of another subject restarts the
// Observation.
func (e Evidence) Subject() Subject {
	if e.Lease {
		return Subject{Process: e.Process, Lock: e.Name, Session: e.TS}
	}
	if e.Process != "" && e.HasPing && e.HasSeq {
		return Subject{Process: e.Process}
	}
	return Subject{Process: e.Process, Lock: e.Name}
}

// A Verdict is the step that a contender may take.
type Verdict int

// The verdicts.
const (
	// Free means that the lock has no holder. Acquire it.
	Free Verdict = iota + 1
	// Held means that the holder shows signs of life.
	Held
	// Watch means that the holder is silent. Read again for Remaining longer.
	Watch
	// Take means that the contender may condemn the holder and then take over the lock.
	Take
	// Skewed means that clocks contradict each other, so only the watch rule may decide. Read
	// again.
	Skewed
	// Malformed means that the lock or the ping cannot be understood. No contender may take it
	// over.
	Malformed
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	if v < Free || v > Malformed {
		return fmt.Sprintf("verdict %d", int(v))
	}
	return [...]string{Free: "free", Held: "held", Watch: "watch", Take: "take", Skewed: "skewed",
		Malformed: "malformed"}[v]
}

// A Decision is a verdict and its reason.
type Decision struct {
	Verdict Verdict
	// Reason explains the verdict in words, with the figures.
	Reason string
	// Remaining is the time for which the evidence must still be unchanged. It is 0 unless the
	// verdict is Watch, Skewed or Held.
	Remaining time.Duration
	// Restart is true if this read is the first of a new watch. The caller must then drop the first
	// read of the previous watch.
	Restart bool
	// Rule is the name of the deciding rule: "watch", "witnesses", "condemned" or "".
	Rule string
}

// A Rule selects one of the rules of the mongos generations.
type Rule int

const (
	// Witnesses (default) is the watch rule, and the shorter rule if all clocks agree.
	Witnesses Rule = iota
	// WatchOnly is the watch rule alone, as in mongos 2.x and 3.x.
	WatchOnly
)

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

// Policy is the contender's timing and its rule. The zero value is not valid; see
// [Policy.Validate].
type Policy struct {
	Takeover        time.Duration // contender's own takeover time
	ForeignTakeover time.Duration // least takeover time for a foreign holder; 15 min in production
	PingInterval    time.Duration // contender's own ping interval, used if the holder's is unknown
	MaxClockSkew    time.Duration // largest difference of server's and contender's clock
	MaxGap          time.Duration // a longer pause between two reads restarts the watch
	Rule            Rule
}

// Validate returns one error of one line that names every field out of range, or nil. Takeover,
// ForeignTakeover, PingInterval and MaxGap must be positive. MaxClockSkew must be at least zero and
// less than Takeover. Rule must be one of the two.
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

// OfLease returns the policy for a lease with that life. The life replaces the contender's takeover
// time, and MaxClockSkew changes in proportion. The other fields keep their values.
func (p Policy) OfLease(life time.Duration) Policy {
	if p.Takeover > 0 {
		p.MaxClockSkew = time.Duration(float64(p.MaxClockSkew) / float64(p.Takeover) * float64(life))
	}
	p.Takeover = life
	return p
}
