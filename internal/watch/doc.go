// Package watch judges who is in the way of a contender: it looks at a lock, watches the
// processes of its holders and waiters, decides by the takeover rule which of them are dead,
// condemns them, and takes them out of the lock.
//
// It knows nothing of guards, of waiting and of queues. The rule itself is in package takeover.
package watch
