// Package election lets one process of many lead: it runs a function in the process that holds a
// lock of package distlock, and in the next one when that ends. An [Election] is the lock's name, a
// candidate is a process that waits for it, a term is one holding of it.
//
// # What it does not promise
//
// A term cannot stop a function. One that ignores its context keeps the lock, and with it everybody
// else, off for as long as its process pings, unless it has a [Lease]. When leadership is LOST,
// because the process was paused or cut off for too long, another may lead while the function still
// runs: give the fence, [Leadership].Fence, to whatever the leader writes to, or write by
// InTransaction.
//
// # What it promises
//
// At most one [Leadership] of a name is trusted at any instant, under the assumptions of package
// distlock. The function is called with a fence that is larger than that of every term before. Its
// context ends when leadership does. Leadership is not given up before the function has returned:
// not by [Election.Resign], not by [Election.Handover], not when the context of Run ends, and not
// by Close of the Manager, which waits for the function as long as the context of Close allows.
// Nothing is called after a term.
//
// After a resignation the next in line leads by the very command that ends the term. A candidate
// that has missed two pings is passed over; one that died later, and a leader that dies, are
// replaced after the takeover time, as with any lock. What the others see of it is at most one
// reading old, see [Election.Observe] and [OnNewLeader]; [Election.IsLeader] says of this process
// what is so at the instant.
//
// # A leader that hangs
//
// Under [Lease] a term ends, too, when its function has not called Renew in time. Then another
// leads whether the function has returned or not, as after a loss: the fence tells the two apart.
// Renew where the work gets on, not by a timer. Give all candidates the same lease: each brings
// that of its own terms.
//
// # What the function must do
//
// Return soon after its context has ended. Ask Err before a step that must not be taken twice.
// Return an error to have the next term here begin after a pause; a panic counts as one.
//
// # Beside others
//
// etcd's Election has the fence (its revision) and no loop, and its Observe never tells that nobody
// leads. client-go's leaderelection releases while the old leader's function still runs, has no
// fence, and calls OnStoppedLeading for candidates that never led; every follower reads every two
// seconds, here a waiting candidate is told.
//
// # Names
//
// The name is a lock's name, in the same namespace. A holder of it as a plain lock is shown as a
// leader without metadata, and keeps candidates waiting. A name that is used [distlock.Shared] or
// with [distlock.Permits] is refused with [ErrMode].
package election
