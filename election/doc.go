// Package election elects a leader among processes. It runs a function in the process that holds a
// lock of package distlock. When that process gives the lock up, the next in the queue runs its
// function. An [Election] has the name of the lock. A candidate is a process that waits for the
// lock, and a term is the time for which a process holds it.
//
// # Limits
//
// Nothing stops a function that ignores its context. It keeps the lock while its process pings,
// unless it has a [Lease]. Leadership is LOST when the process was paused or cut off for too long.
// Another candidate may then lead while the function still runs. So pass the fence,
// [Leadership].Fence, to the resources that the leader writes to, or write by InTransaction.
//
// # Promises
//
// At most one [Leadership] of a name is trusted at any instant, under the assumptions of package
// distlock. Each term has a larger fence than every earlier term. The context of the function ends
// with its leadership. No function is called after its term.
//
// The lock is not released before the function has returned. This holds for [Election.Resign],
// [Election.Handover], the end of Run's context and Close of the Manager. Close waits for the
// function until the context of Close ends.
//
// The command that ends a term by resignation also begins the next candidate's term. A candidate
// that has missed two pings is passed over. A candidate that died later, or a leader that dies, is
// replaced after the takeover time. An observer is at most one reading late, see [Election.Observe]
// and [OnNewLeader]. [Election.IsLeader] is exact for this process.
//
// # A leader that hangs
//
// Under [Lease] a term also ends when its function has not called Renew in time. Then, as after a
// loss, another candidate leads even if the function still runs. The fence distinguishes the two
// leaders. Renew where the work makes progress, not by a timer. Use the same lease for all
// candidates, because a candidate's lease applies to its terms only.
//
// # Duties of the function
//
// Return soon after the end of its context. Check Err before a step that must not be taken twice.
// Return an error to delay the next term of this process; a panic counts as an error.
//
// # Comparison
//
// etcd's Election has the fence (its revision) and no loop. Its Observe never reports the absence
// of a leader. client-go's leaderelection has no fence. It releases while the old leader's function
// still runs, and it calls OnStoppedLeading for candidates that never led. Its followers read every
// two seconds, while a waiting candidate here is notified.
//
// # Names
//
// The name of an election is the name of a lock, in the same namespace. The holder of a plain lock
// with that name counts as a leader without metadata, and candidates wait for it. [ErrMode] refuses
// a name that is used with [distlock.Shared] or [distlock.Permits].
package election
