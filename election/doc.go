// Package election elects a leader among processes: it runs a function in the process that holds a
// lock of package distlock, and in the next one after that. An [Election] is the lock's name, a
// candidate is a process that waits for it, a term is one holding of it.
//
// # Limits
//
// A term cannot stop a function. One that ignores its context keeps the lock while its process
// pings, unless it has a [Lease]. When leadership is LOST, because the process was paused or cut
// off for too long, another candidate may lead while the function still runs: pass the fence,
// [Leadership].Fence, to the resources that the leader writes to, or write by InTransaction.
//
// # Promises
//
// At most one [Leadership] of a name is trusted at any instant, under the assumptions of package
// distlock. The function gets a fence that is larger than that of every earlier term. Its context
// ends with its leadership. The lock is not released before the function has returned: not by
// [Election.Resign], not by [Election.Handover], not at the end of the context of Run, and not by
// Close of the Manager, which waits for the function as long as the context of Close allows. No
// function is called after a term.
//
// After a resignation the next candidate leads by the same command that ends the term. A candidate
// that has missed two pings is passed over. One that died later, and a leader that dies, are
// replaced after the takeover time, as with any lock. Observers are at most one reading late, see
// [Election.Observe] and [OnNewLeader]; [Election.IsLeader] is exact for this process.
//
// # A leader that hangs
//
// Under [Lease] a term also ends when its function has not called Renew in time. Then another
// candidate leads whether the function has returned or not, as after a loss: the fence
// distinguishes the two. Renew where the work makes progress, not by a timer. Use the same lease
// for all candidates: each one's lease applies to its terms.
//
// # Duties of the function
//
// Return soon after the end of its context. Check Err before a step that must not be taken twice.
// Return an error to delay the next term of this process; a panic counts as an error.
//
// # Comparison
//
// etcd's Election has the fence (its revision) and no loop, and its Observe never reports the
// absence of a leader. client-go's leaderelection releases while the old leader's function still
// runs, has no fence, and calls OnStoppedLeading for candidates that never led; every follower
// reads every two seconds, while a waiting candidate here is notified.
//
// # Names
//
// The name is a lock's name, in the same namespace. A holder of a plain lock of that name counts as
// a leader without metadata, and candidates wait for it. A name that is used [distlock.Shared] or
// with [distlock.Permits] is refused with [ErrMode].
package election
