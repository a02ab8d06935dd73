package takeover

import (
	"fmt"
	"strings"
	"time"
)

// Evidence is the result of one read: the state of a lock, the ping of its holder, and the reader's
// own clocks before and after the read. The reader fills it in, and [Decide] judges it.
type Evidence struct {
	// Lock
	Name      string
	Held      bool          // false if the lock is free or has no document
	Malformed string        // why the lock or its ping cannot be understood, or ""
	Process   string        // holder's process id, or ""
	TS        [12]byte      // lock session
	Recorded  time.Duration // takeover time that the holder wrote into the lock document, or 0

	// If Lease is set, the contender watches the lease of one lock session instead of the ping of a
	// process. Ping, Local and Seq then describe the last renewal of the lease. PingTakeover is the
	// duration of the lease.
	Lease bool

	// Ping of the holder
	HasPing      bool
	Ping         time.Time     // server's clock at the last ping
	Local        time.Time     // holder's own clock at the last ping, zero if missing
	Seq          int64         // number that changes with every ping
	HasSeq       bool          // false if no process of distlock has pinged, see Foreign
	PingInterval time.Duration // holder's ping interval, 0 if unknown
	PingTakeover time.Duration // holder's takeover time from the ping document, 0 if unknown
	Condemned    string        // the process that condemned the holder, and its reason, or ""
	Sight        Sight         // record that an earlier contender wrote, never the reader itself

	// Clocks of the read
	Server     time.Time     // server's clock, zero if unknown
	Primary    string        // term of the server that answered, or ""
	Wall       time.Time     // reader's wall clock at the reply
	Sent       time.Duration // reader's monotonic clock before the read was sent
	Received   time.Duration // reader's monotonic clock at the reply
	LongestGap time.Duration // longest pause between two reads of a watch, set by Observation
}

// Foreign reports whether the holder may be foreign: a mongos, or MongoDB's own lock manager. A
// foreign holder ignores a condemnation. It has no deadline, and may have the same id after a
// restart. So a contender watches a foreign holder for the foreign takeover time, by the watch rule
// alone, and never writes into its ping document.
//
// A process of distlock leaves two traces: seq in its ping document, and its takeover time in its
// lock or queue entry. The takeover time remains if the ping document is removed. A ping without
// seq belongs to a foreign holder, with one exception: a contender inserts a condemned ping without
// seq for a process of distlock that has no ping document.
//
// When MongoDB's manager takes a lock, fields of an earlier holder remain in the document. The
// reader must then set Recorded to zero. ParseLock of package catalog recognizes this case by the
// field state.
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

// A Subject identifies the subject of an [Observation]: a process, a lock or a lease.
// [Evidence.Subject] returns it.
type Subject struct {
	Process string
	Lock    string   // empty if the watch serves every lock of the process
	Session [12]byte // session of a lease; zero otherwise
}

// Subject returns the key under which a caller keeps the [Observation] of this evidence:
//
//   - A holder with a seq is watched once for all its locks and queue entries, because all its
//     guards depend on its ping.
//   - A lease is watched for its lock session.
//   - Any other holder is watched for each lock separately, as in mongos. Such a holder may acquire
//     a lock without a current ping.
//
// A read of another subject restarts the Observation.
func (e Evidence) Subject() Subject {
	if e.Lease {
		return Subject{Process: e.Process, Lock: e.Name, Session: e.TS}
	}
	if e.Process != "" && e.HasPing && e.HasSeq {
		return Subject{Process: e.Process}
	}
	return Subject{Process: e.Process, Lock: e.Name}
}

// A Verdict is the result of a decision: the next step that a contender may take.
type Verdict int

// The verdicts.
const (
	// Free means that the lock has no holder. The contender may acquire it.
	Free Verdict = iota + 1
	// Held means that the holder's ping is fresh or has just changed. The contender must not take the
	// lock.
	Held
	// Watch means that the holder is silent, but not for long enough. The contender must read again
	// until Remaining has passed.
	Watch
	// Take means that the contender may condemn the holder and then take over the lock.
	Take
	// Skewed means that clocks contradict each other. The contender must read again, and only the
	// watch rule may take the lock.
	Skewed
	// Malformed means that the lock or the ping cannot be parsed. No contender may take the lock.
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
	// Remaining is the time for which the evidence must remain unchanged before a takeover. It is zero
	// unless the verdict is Watch, Skewed or Held.
	Remaining time.Duration
	// Restart is true if this read begins a new watch. The caller must then drop the first read of the
	// previous watch.
	Restart bool
	// Rule is the rule that permits the takeover: "watch", "witnesses" or "condemned". It is "" for
	// verdicts other than Take.
	Rule string
}

// A Rule selects the rules by which a contender may take a lock.
type Rule int

const (
	// Witnesses, the default, selects the watch rule and the witnesses rule. The witnesses rule may
	// decide earlier, if all clocks agree.
	Witnesses Rule = iota
	// WatchOnly selects the watch rule alone, as in mongos 2.0 to 6.0.
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

// Policy contains the time limits and the rule of a contender. The zero value is not valid; see
// [Policy.Validate].
type Policy struct {
	Takeover        time.Duration // contender's own takeover time
	ForeignTakeover time.Duration // least takeover time for a foreign holder; 15 min in production
	PingInterval    time.Duration // contender's own ping interval, used if the holder's is unknown
	MaxClockSkew    time.Duration // largest difference of server's and contender's clock
	MaxGap          time.Duration // a longer pause between two reads restarts the watch
	Rule            Rule
}

// Validate returns nil, or an error that names every field that is out of range. Takeover,
// ForeignTakeover, PingInterval and MaxGap must be positive. MaxClockSkew must be at least zero and
// less than Takeover. Rule must be Witnesses or WatchOnly.
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

// OfLease returns the policy for a lease of the given duration. The duration replaces Takeover, and
// MaxClockSkew changes in proportion.
func (p Policy) OfLease(life time.Duration) Policy {
	if p.Takeover > 0 {
		p.MaxClockSkew = time.Duration(float64(p.MaxClockSkew) / float64(p.Takeover) * float64(life))
	}
	p.Takeover = life
	return p
}
