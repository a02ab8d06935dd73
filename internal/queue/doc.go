// Package queue is the waiting of a process for locks. The sessions of its callers are queued in
// the lock documents. One loop serves all of them: it receives grants by one change stream, or
// polls for them; it reads the holders and waiters before them, and a [watch.Judge] evicts the
// dead.
//
// It knows no guards and no managers.
package queue
