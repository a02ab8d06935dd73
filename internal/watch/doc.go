// Package watch evicts dead processes from locks. It reads the locks, observes the processes of
// their holders and waiters, and decides which processes are dead. It condemns these processes and
// evicts them. The rule for the decision is in package takeover.
package watch
