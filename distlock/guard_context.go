package distlock

import "context"

// A guardContext is the context of a holding as its user has it. It keeps the guards that it stands
// for, and so does every context derived from it: a caller that keeps only the context holds the
// lock. One derived from it whose cancel is never called keeps them for as long as the holding
// lasts: the context package knows no other way, and a lock that is held for too long is the safe
// side.
type guardContext struct {
	context.Context     // of the holding, which ends when that does
	keeps           any // the guard, or the guards
}
