// Package queue waits for locks on behalf of a process. The sessions of its callers are queued in
// the lock documents. One loop serves all sessions. It receives grants by one change stream, or
// polls for them. It reads the holders and the waiters ahead of its sessions, and a [watch.Judge]
// evicts those that are dead.
package queue
