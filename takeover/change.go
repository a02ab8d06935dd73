package takeover

import "fmt"

// A Subject is what one [Observation] watches. See [Evidence.Subject].
type Subject struct {
	Process string
	Lock    string   // empty when the watch serves every lock of the process
	Session [12]byte // of a lease; zero otherwise
}

// Subject returns the key under which a caller keeps the [Observation] of this evidence. A holder
// with a seq is watched once for all its locks and all its places in queues: none of its guards
// outlives its ping. A foreign holder, one without a ping document and one without a process id are
// watched per lock, as mongos did it, because a mongos may acquire whether its ping is current or
// not. A lease is watched for its own lock session. Looks of different subjects in one Observation
// restart it each time.
func (e Evidence) Subject() Subject {
	if e.Lease {
		return Subject{Process: e.Process, Lock: e.Name, Session: e.TS}
	}
	if e.Process != "" && e.HasPing && e.HasSeq {
		return Subject{Process: e.Process}
	}
	return Subject{Process: e.Process, Lock: e.Name}
}

// changed compares the pictures of two looks and names the first difference, "" when there is
// none. mongos 2.0 to 3.0 compared process id, ping and ts; 3.2 to 6.0 ping and ts. Here seq stands
// besides the ping, so that a frozen or coarse clock of the server hides no ping, and local, which
// betrays a second process with the same id. ts is compared for looks at the same lock; looks at
// different locks belong together only where one watch serves them (see [Evidence.Subject]).
func changed(before, now *Evidence) string {
	switch {
	case !before.Held || before.Malformed != "":
		return "the look before showed no holder"
	case before.Process != now.Process:
		return fmt.Sprintf("the holder was %s", holder(*before))
	case before.HasPing != now.HasPing && now.HasPing:
		return "a ping document has appeared"
	case before.HasPing != now.HasPing:
		return "the ping document has gone"
	case before.HasSeq != now.HasSeq:
		return "the ping document has another form"
	case before.Seq != now.Seq:
		return fmt.Sprintf("seq went from %d to %d", before.Seq, now.Seq)
	case !before.Ping.Equal(now.Ping):
		return fmt.Sprintf("ping went from %s to %s", instant(before.Ping), instant(now.Ping))
	case !before.Local.Equal(now.Local):
		return fmt.Sprintf("local went from %s to %s", instant(before.Local), instant(now.Local))
	case before.Subject() != now.Subject():
		return fmt.Sprintf("the look before was at lock %s", quoted(before.Name))
	case before.Name == now.Name && before.TS != now.TS:
		return "another session holds the lock"
	}
	return ""
}

// moved says what happened to the server between two looks that makes its clock useless as a
// measure, "" when nothing did. A new primary restarts as in mongos 3.2 and later, which compared
// election ids; a term that one of the looks does not know cannot be compared and restarts nothing.
// A clock that went back made mongos 2.0 count 0 and mongos 3.2 warn and wait; here it restarts.
func moved(before, now *Evidence) string {
	switch {
	case before.Primary != "" && now.Primary != "" && before.Primary != now.Primary:
		return fmt.Sprintf("primary %s instead of %s answered",
			quoted(now.Primary), quoted(before.Primary))
	case !before.Server.IsZero() && !now.Server.IsZero() && now.Server.Before(before.Server):
		return fmt.Sprintf("the server's clock went back from %s to %s",
			instant(before.Server), instant(now.Server))
	}
	return ""
}

// paused says that nobody looked for too long, "" when that is not so. No generation of mongos had
// it: two looks fifteen minutes apart were enough, whatever the contender did between them.
func paused(now Evidence, p Policy) string {
	if now.LongestGap <= p.MaxGap {
		return ""
	}
	return fmt.Sprintf("nobody looked for %s, more than the %s allowed",
		figure(now.LongestGap), figure(p.MaxGap))
}

// pinged reports whether the holder visibly pinged between two looks: its seq rose, or, for a
// foreign holder, its ping became younger.
func pinged(before, now Evidence) bool {
	if before.Process != now.Process || !before.HasPing || !now.HasPing ||
		before.HasSeq != now.HasSeq {
		return false
	}
	if now.HasSeq {
		return now.Seq > before.Seq
	}
	return now.Ping.After(before.Ping)
}
