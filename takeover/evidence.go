package takeover

import "time"

// Evidence is what one look at a lock showed, with the readings of the looker's own clocks around
// it. It is plain data: whoever looks fills it in, [Decide] judges it.
type Evidence struct {
	// Lock
	Name      string
	Held      bool          // false: free, or no document
	Malformed string        // not empty: what cannot be understood in the lock or its ping
	Process   string        // holder's process id, empty when the document has none
	TS        [12]byte      // lock session
	Recorded  time.Duration // takeover time that the holder wrote into the lock document, 0 for none

	// Lease is set when the pulse is not that of a process but that of one lock session: Ping,
	// Local and Seq are those of the last renewal of its lease, PingTakeover is its life.
	Lease bool

	// Ping of the holder
	HasPing      bool
	Ping         time.Time     // server's clock at the last ping
	Local        time.Time     // holder's own clock at the last ping, zero when absent
	Seq          int64         // change marker
	HasSeq       bool          // false: none of ours has pinged, see Foreign
	PingInterval time.Duration // holder's ping interval, 0 when unknown
	PingTakeover time.Duration // holder's takeover time from the ping document, 0 when unknown
	Condemned    string        // not empty: the holder is condemned; by whom and why
	Sight        Sight         // what an earlier contender saw of this ping; the looker's own is void

	// Clocks of the look
	Server     time.Time     // server's clock, zero when unknown
	Primary    string        // term of the server that answered, empty when unknown
	Wall       time.Time     // looker's wall clock when the reply was there
	Sent       time.Duration // looker's monotonic clock before the look was sent
	Received   time.Duration // looker's monotonic clock when the reply was there
	LongestGap time.Duration // longest pause between two looks since the first, filled by Observation
}

// Foreign reports whether the holder may be none of ours: a mongos, or MongoDB's own lock manager.
// Such a holder looks at no mark, so it cannot be condemned and may live whatever its mark says; it
// checks no deadline; and its id may be that of its next start. So it is watched for the foreign
// takeover time, by the watch rule alone, and nothing is written into its ping.
//
// Ours is who left a trace that no foreign one leaves: seq in the ping or, where that was removed,
// a recorded takeover time in a lock that it took, or in its place in a line. Every one of ours
// writes both. A ping without seq speaks for a foreign one again, but for the condemned one that a
// contender of ours inserts for a holder of ours.
//
// A foreign manager that takes a lock leaves the fields of the one of ours that held it before.
// That Recorded is none of these is for the reader of the document to tell: ParseLock of package
// catalog does, by the state.
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

// A Verdict is what a contender may do.
type Verdict int

// The verdicts.
const (
	// Free: nobody holds the lock; acquire it.
	Free Verdict = iota + 1
	// Held: the holder is alive as far as anybody can tell.
	Held
	// Watch: the holder is silent; keep looking for Remaining longer.
	Watch
	// Take: condemn the holder, then overtake.
	Take
	// Skewed: clocks contradict each other, so only watching may decide; keep looking.
	Skewed
	// Malformed: the lock or the ping cannot be understood; nobody may take it over.
	Malformed
)

// A Decision is a verdict and its reason.
type Decision struct {
	Verdict Verdict
	// Reason says in words, with the figures, why.
	Reason string
	// Remaining is how long the same picture must still be seen; 0 unless Watch, Skewed or Held.
	Remaining time.Duration
	// Restart is true when the watch begins anew with this look: the caller forgets the first
	// look and keeps this one.
	Restart bool
	// Rule names the rule that decided: "watch", "witnesses", "condemned" or "".
	Rule string
}

// Rule chooses among the generations' rules.
type Rule int

const (
	// Witnesses (default): the ground rule, and the shorter rule when all clocks agree.
	Witnesses Rule = iota
	// WatchOnly: the ground rule alone, as mongos 2.x and 3.x had it.
	WatchOnly
)

// Policy is the contender's timing and choice of rules. The zero value is not valid; see
// [Policy.Validate].
type Policy struct {
	Takeover        time.Duration // contender's own takeover time
	ForeignTakeover time.Duration // least takeover time for a foreign holder; 15 min in production
	PingInterval    time.Duration // contender's own ping interval, used when the holder's is unknown
	MaxClockSkew    time.Duration // how far server and contender may differ for the witnesses to count
	MaxGap          time.Duration // a longer pause between two looks restarts the watch
	Rule            Rule
}
