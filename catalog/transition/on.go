package transition

import "mongodlm/catalog"

// On implements [catalog.Transition]; those with a session of the lock have it from there.
func (t GrantNext) On() string { return t.Name }

// On implements [catalog.Transition].
func (t RequestYield) On() string { return t.Name }

// Of returns what a transition does, as errors tell it.
func Of(t catalog.Transition) string {
	switch t := t.(type) {
	case Enter:
		return "enter"
	case Leave:
		return "leave"
	case Evict:
		return "evict a session of"
	case GrantNext:
		return "grant the next of"
	case Confirm:
		return "confirm"
	case SeedFence:
		return "seed the fence of"
	case Renew:
		return "renew the lease of"
	case Overtake:
		return "overtake"
	case PutFirst:
		return "put a waiter first of"
	case RequestYield:
		return "request the yield of"
	case Break:
		return "break"
	default:
		return t.On()
	}
}

// Under returns the session of a transition that may be a part of the transaction under the lock
// that the session holds, see [catalog.Transactions].
func Under(t catalog.Transition) (s catalog.Session, ok bool) {
	switch t := t.(type) {
	case Renew:
		return t.Session, true
	case PutFirst:
		return t.Session, true
	}
	return s, false
}
