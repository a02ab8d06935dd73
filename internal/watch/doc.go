// Package watch evicts dead processes from locks. It reads the locks, observes the processes of
// their holders and waiters, and decides which processes are dead. Package takeover contains the
// rule for the decision. Dead processes are condemned and evicted.
package watch
