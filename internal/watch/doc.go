// Package watch reads locks, observes the processes of their holders and waiters, decides by the
// takeover rule which processes are dead, condemns them, and evicts them from the locks.
//
// It knows no guards and no callers. The rule itself is in package takeover.
package watch
