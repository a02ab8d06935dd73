package contend

import (
	"time"

	"mongodlm/catalog"
	"mongodlm/takeover"
)

// A Scene is one look at a lock, judged. It is never written to: several waiters share it.
type Scene struct {
	catalog.Snapshot
	Name   string
	Judged []Judged // the holders, then the waiters, in their order
}

// A Judged is a holder or a waiter, what is known of its process, and what may be done about it.
type Judged struct {
	catalog.Participant
	PingState catalog.PingState
	Waits     bool
	Evidence  takeover.Evidence
	Decision  takeover.Decision
	// Renewal is not zero when it is dead because its lease has stood still with that renewal, whether
	// or not its process lives.
	Renewal int64
	// Passed is set when it waited, had missed two pings, and was passed over.
	Passed bool
}

// Watched names a suspect of a lock for the store, as it was watched.
func (s *Judged) Watched(lock string) catalog.Holder {
	h := HolderOf(lock, s.Participant)
	h.Renewal = s.Renewal
	return h
}

// Dead reports whether the takeover rule lets it be taken out of the lock.
func (s *Judged) Dead() bool { return s.Decision.Verdict == takeover.Take }

// Rule names the takeover rule by which it is dead, as [takeover.Decision] does; "lease" when its
// lease stood still, by whichever rule, and "silent" for a waiter that was passed over.
func (s *Judged) Rule() string {
	switch {
	case s.Renewal != 0:
		return "lease"
	case s.Passed:
		return "silent"
	}
	return s.Decision.Rule
}

// Holders are the suspects that hold the lock.
func (s *Scene) Holders() []Judged {
	n := 0
	for n < len(s.Judged) && !s.Judged[n].Waits {
		n++
	}
	return s.Judged[:n]
}

// Free reports whether nobody holds the lock.
func (s *Scene) Free() bool { return s.LockErr == nil && len(s.Holders()) == 0 }

// Malformed says what of the lock or its holders cannot be understood; nil when all can.
func (s *Scene) Malformed() error {
	if s.LockErr != nil {
		return s.LockErr
	}
	for _, h := range s.Holders() {
		if h.PingState.Err != nil {
			return h.PingState.Err
		}
	}
	return nil
}

// OtherLimit says that the lock is in use with another limit than asked for; nil when it is not.
func (s *Scene) OtherLimit(asked int32) *catalog.PermitMismatchError {
	if s.Lock == nil || len(s.Judged) == 0 || s.Lock.Limit == asked {
		return nil
	}
	return &catalog.PermitMismatchError{Name: s.Name, Recorded: s.Lock.Limit, Asked: asked}
}

// Silent reports whether everybody who uses the lock with another limit than asked for has been
// Silent for longer than a living process would be: they may all turn out to be dead.
func (s *Scene) Silent(asked int32) bool {
	for _, one := range s.Judged {
		verdict := one.Decision.Verdict
		if (one.Waits && one.Limit == asked) ||
			verdict == takeover.Watch || verdict == takeover.Skewed || verdict == takeover.Take {
			continue
		}
		return false
	}
	return true
}

// Still returns for how long nobody came into the lock or its line, by the server's clock; zero
// when that is unknown.
func (s *Scene) Still() time.Duration {
	var moved time.Time
	for _, one := range s.Judged {
		if one.Since.After(moved) {
			moved = one.Since
		}
	}
	if moved.IsZero() || s.ServerTime.IsZero() {
		return 0
	}
	return max(0, s.ServerTime.Sub(moved))
}

// Pictured is the scene that a lock document alone shows: who holds the lock, and nothing of
// whether they live.
func Pictured(lock catalog.Lock) *Scene {
	s := &Scene{Snapshot: catalog.Snapshot{Lock: &lock}, Name: lock.Name}
	for _, p := range lock.Holders() {
		s.Judged = append(s.Judged, Judged{Participant: p})
	}
	return s
}
