// Package queue waits for locks on behalf of a process. The sessions of the process's callers are
// queued in the lock documents. One loop serves all sessions. It receives their grants by one
// change stream, or polls for them. The loop also reads the holders, and the waiters ahead of the
// process's sessions. A [watch.Judge] evicts the dead processes among these holders and waiters.
package queue
