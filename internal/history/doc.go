// Package history keeps what happened to the locks of a process until the background writes it: a
// bounded buffer, which drops the oldest first and says in the next batch how many it dropped. A
// lock that was held for a moment only leaves nothing.
//
// It knows nothing of guards and events. Nobody waits for it but the background, and no lock
// depends on it.
package history
