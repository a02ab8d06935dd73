package takeover

import (
	"fmt"
	"strings"
	"time"
)

// Evidence is one read of a lock and of its holder's ping, with the readings of the reader's own
// clocks around it. It is plain data: the reader fills it in, [Decide] judges it.
type Evidence struct {
	// Lock
	Name      string
	Held      bool          // false: free, or no document
	Malformed string        // not empty: why the lock or its ping cannot be understood
	Process   string        // holder's process id, empty when it is missing
	TS        [12]byte      // lock session
	Recorded  time.Duration // takeover time that the holder wrote into the lock document, or 0

	// Lease is set when the pulse is not that of a process but that of one lock session: Ping,
	// Local and Seq are those of the last renewal of its lease, PingTakeover is its life.
	Lease bool

	// Ping of the holder
	HasPing      bool
	Ping         time.Time     // server's clock at the last ping
	Local        time.Time     // holder's own clock at the last ping, zero when absent
	Seq          int64         // change marker
	HasSeq       bool          // false: no process of ours has pinged, see Foreign
	PingInterval time.Duration // holder's ping interval, 0 when unknown
	PingTakeover time.Duration // holder's takeover time from the ping document, 0 when unknown
	Condemned    string        // not empty: the holder is condemned; by which process and why
	Sight        Sight         // record of an earlier contender; the reader's own is void

	// Clocks of the read
	Server     time.Time     // server's clock, zero when unknown
	Primary    string        // term of the server that answered, empty when unknown
	Wall       time.Time     // reader's wall clock when the reply was there
	Sent       time.Duration // reader's monotonic clock before the read was sent
	Received   time.Duration // reader's monotonic clock when the reply was there
	LongestGap time.Duration // longest pause between two reads of a watch, set by Observation
}

// Foreign reports whether the holder may be foreign: a mongos, or MongoDB's own lock manager. Such
// a holder reads no mark, so it cannot be condemned and may live with any mark; it checks no
// deadline; and its id may be that of its next start. So it is watched for the foreign takeover
// time, by the watch rule alone, and no contender writes into its ping.
//
// A process of ours leaves traces that a foreign one does not: seq in the ping or, where the ping
// was removed, a recorded takeover time in its lock or in its queue entry. Every process of ours
// writes both. A ping without seq is that of a foreign holder, except the condemned one that a
// contender of ours inserts for a holder of ours.
//
// A foreign manager that takes a lock keeps the fields of the holder of ours before it. The reader
// of the document must leave Recorded zero there; ParseLock of package catalog does, by the state.
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
	Lock    string   // empty when the watch serves every lock of the process
	Session [12]byte // of a lease; zero otherwise
}

// Subject returns the key under which a caller keeps the [Observation] of this evidence. A holder
// with a seq is watched once for all its locks and queue entries: no guard of it outlives its ping.
// A foreign holder, one without a ping document and one without a process id are watched per lock,
// as in mongos, because a mongos may acquire whether its ping is current or not. A lease is watched
// for its own lock session. Reads of different subjects in one Observation restart it each time.
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
	// Free: the lock has no holder; acquire it.
	Free Verdict = iota + 1
	// Held: the holder shows signs of life.
	Held
	// Watch: the holder is silent; read again for Remaining longer.
	Watch
	// Take: condemn the holder, then overtake.
	Take
	// Skewed: clocks contradict each other, so only the watch rule may decide; read again.
	Skewed
	// Malformed: the lock or the ping cannot be understood; no contender may take it over.
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
	// Remaining is how long the evidence must still be unchanged; 0 unless Watch, Skewed or Held.
	Remaining time.Duration
	// Restart is true when this read is the first of a new watch: the caller forgets the old first
	// read.
	Restart bool
	// Rule names the rule that decided: "watch", "witnesses", "condemned" or "".
	Rule string
}

// Rule chooses among the generations' rules.
type Rule int

const (
	// Witnesses (default): the watch rule, and the shorter rule when all clocks agree.
	Witnesses Rule = iota
	// WatchOnly: the watch rule alone, as in mongos 2.x and 3.x.
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

// Policy is the contender's timing and choice of rules. The zero value is not valid; see
// [Policy.Validate].
type Policy struct {
	Takeover        time.Duration // contender's own takeover time
	ForeignTakeover time.Duration // least takeover time for a foreign holder; 15 min in production
	PingInterval    time.Duration // contender's own ping interval, used when the holder's is unknown
	MaxClockSkew    time.Duration // how far server and contender may differ for the witnesses to count
	MaxGap          time.Duration // a longer pause between two reads restarts the watch
	Rule            Rule
}

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

// OfLease returns the policy for a lease of that life: the life replaces the contender's takeover
// time, and clocks may differ by the same share of it. The other fields keep their values.
func (p Policy) OfLease(life time.Duration) Policy {
	if p.Takeover > 0 {
		p.MaxClockSkew = time.Duration(float64(p.MaxClockSkew) / float64(p.Takeover) * float64(life))
	}
	p.Takeover = life
	return p
}
