// Package election elects a leader among processes. The leader is the process that holds a lock of
// package distlock. The leader runs a function. When the leader releases the lock, the next process
// in the queue becomes the leader and runs its function. The name of an [Election] is the name of
// its lock. A candidate is a process that waits for the lock. A term is the time for which one
// process holds the lock.
//
// # Limits
//
// If the function ignores the end of its context, the leader keeps the lock as long as its process
// pings. A [Lease] limits this time. If a process is paused or cut off for too long, its leadership
// is LOST. Then another candidate may lead while the function of the old leader still runs. So pass
// the fence, [Leadership].Fence, to the resources that the leader writes to, or write in a
// transaction, see [distlock.TryGuard.InTransaction].
//
// # Promises
//
// Under the assumptions of package distlock, at most one [Leadership] of a name is trusted at any
// instant. Each term has a larger fence than every earlier term. The context of the function ends
// with its leadership. After the end of a term, its function is not called.
//
// The lock is not released before the function has returned. This also applies to
// [Election.Resign], to [Election.Handover], to the end of Run's context and to Close of the
// Manager. Close waits for the function until the context of Close ends.
//
// The release of the lock begins the term of the next candidate in the same command. The release
// passes over a candidate that has missed two pings. A candidate that died more recently still
// becomes the leader, and is replaced after the takeover time. A leader that dies is also replaced
// after the takeover time. Observers receive a new leader with their next read, see
// [Election.Observe] and [OnNewLeader]. [Election.IsLeader] is exact for this process.
//
// # A leader that hangs
//
// With a [Lease], a term also ends if its function does not call Renew in time. Then another
// candidate leads even if the function still runs. The fence distinguishes the two leaders. Call
// Renew where the work makes progress, not by a timer. Use the same lease for all candidates,
// because a lease applies only to the terms of its own candidate.
//
// # Duties of the function
//
// Return soon after the end of the context. Check Err before a step that must not happen twice.
// After a failure, return an error: consecutive errors lengthen the pause before the next term of
// this process, see [Backoff]. A panic counts as an error.
//
// # Comparison
//
// The Election of etcd has a fence, the revision, but it runs no function. Its Observe does not
// report the absence of a leader. The leaderelection of client-go has no fence. It releases the
// lock while the old leader's function still runs, and it calls OnStoppedLeading for candidates
// that never led. Its followers read the lock every two seconds, but a candidate of this package
// receives a notification.
//
// # Names
//
// The name of an election is the name of a lock, in the same namespace. If a process holds a plain
// lock with that name, the process counts as a leader without metadata, and candidates wait for the
// lock. If the lock is held in the mode [distlock.Shared] or [distlock.Permits], an election of
// that name fails with [ErrMode].
package election
