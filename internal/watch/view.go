package watch

import (
	"mongodlm/catalog"
	"mongodlm/takeover"
)

// A View is a snapshot of a lock with a decision on each holder and waiter. A View is never
// modified, because several waiters share it.
type View struct {
	catalog.Snapshot
	Name     string
	Suspects []Suspect // the holders, then the waiters in queue order
}

// A Suspect is a holder or waiter, with the state of its process and a decision.
type Suspect struct {
	catalog.Participant
	PingState catalog.PingState
	Waits     bool
	Evidence  takeover.Evidence
	Decision  takeover.Decision
	// Renewal is the number of the last renewal if the holder's lease has expired, else 0. If Renewal
	// is not 0, the process may be alive.
	Renewal int64
	// Silent is set for a waiter that was evicted because its process had missed two pings.
	Silent bool
}

// ViewOf returns a view of a lock document alone. Its suspects are the holders, without pings and
// decisions.
func ViewOf(lock catalog.Lock) *View {
	v := &View{Snapshot: catalog.Snapshot{Lock: &lock}, Name: lock.Name}
	for _, p := range lock.Holders() {
		v.Suspects = append(v.Suspects, Suspect{Participant: p})
	}
	return v
}

// HolderOf returns the [catalog.Holder] that identifies a holder or waiter of the given lock.
func HolderOf(lock string, p catalog.Participant) catalog.Holder {
	return catalog.Holder{Session: catalog.Session{Name: lock, TS: p.TS}, Process: p.Process}
}

// Holder returns the [catalog.Holder] that identifies the suspect, with the watched renewal.
func (s *Suspect) Holder(lock string) catalog.Holder {
	h := HolderOf(lock, s.Participant)
	h.Renewal = s.Renewal
	return h
}

// Dead reports whether the takeover rule permits the eviction of the suspect.
func (s *Suspect) Dead() bool { return s.Decision.Verdict == takeover.Take }

// Rule returns the name of the rule that permits the eviction, as in [takeover.Decision]. For an
// expired lease it returns "lease". For a silent waiter it returns "silent".
func (s *Suspect) Rule() string {
	switch {
	case s.Renewal != 0:
		return "lease"
	case s.Silent:
		return "silent"
	}
	return s.Decision.Rule
}

// Holders returns the suspects that hold the lock.
func (v *View) Holders() []Suspect {
	n := 0
	for n < len(v.Suspects) && !v.Suspects[n].Waits {
		n++
	}
	return v.Suspects[:n]
}

// Free reports whether the lock has no holder.
func (v *View) Free() bool { return v.LockErr == nil && len(v.Holders()) == 0 }

// Malformed returns the first error in the lock document and in the holders' pings, or nil.
func (v *View) Malformed() error {
	if v.LockErr != nil {
		return v.LockErr
	}
	for _, h := range v.Holders() {
		if h.PingState.Err != nil {
			return h.PingState.Err
		}
	}
	return nil
}

// OtherLimit returns an error if the lock is used with another limit than the given one, else nil.
func (v *View) OtherLimit(asked int32) *catalog.PermitMismatchError {
	if v.Lock == nil || len(v.Suspects) == 0 || v.Lock.Limit == asked {
		return nil
	}
	return &catalog.PermitMismatchError{Name: v.Name, Recorded: v.Lock.Limit, Asked: asked}
}

// OthersSilent reports whether all holders are silent, and also all waiters with another limit than
// the given one. Silent processes may be dead.
func (v *View) OthersSilent(asked int32) bool {
	for _, one := range v.Suspects {
		verdict := one.Decision.Verdict
		if (one.Waits && one.Limit == asked) ||
			verdict == takeover.Watch || verdict == takeover.Skewed || verdict == takeover.Take {
			continue
		}
		return false
	}
	return true
}
