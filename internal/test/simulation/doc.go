// Package simulation runs the real code of distlock, pinger and takeover in several simulated
// processes, in virtual time. The processes use one store in memory. The package searches for a
// schedule that breaks a guarantee of the lock.
//
// A [Schedule] is plain data: the processes and their clocks, the actions of the users, and a list
// of faults. [Run] plays the schedule and returns a [Result] with the violations. A process acts
// only when one of its timers fires or one of its commands is answered. Both are events of one
// queue. The queue hands out one event at a time and waits until every goroutine is blocked again,
// so the schedule chooses the order of simultaneous events. If one event wakes two goroutines of a
// process, Go's scheduler decides which goroutine runs first. A schedule may therefore have a few
// timelines.
//
// # Faults
//
// A fault of a command delays the request or the reply, refuses the command or drops it, applies it
// and loses the reply, applies it late or twice, answers a read with an old state, or kills or stops
// the process. At any time a process may be killed, closed, stopped, suspended with its monotonic
// clock, or cut off in one or both directions, the contexts of its calls may end, clocks may step,
// another primary may be elected, and a free lock document may be deleted. [Kind] lists the faults.
//
// MongoDB's own lock manager may run at the same time. If the schedule sets Streams, waiters learn of
// their grants from a stream of notices, which may be late or break, and else by polls.
//
// # Oracles
//
// The oracles run after every event. They check these rules:
//
//   - I1: while an exclusive guard is trusted, no other guard of the same lock is trusted. The
//     number of trusted permits is at most the limit. Each guard uses the clock of its process.
//   - I2: fences rise.
//   - I3: no conditional write touches another session's document or moves another session in it.
//   - I4: before a takeover the loser has stopped trusting its guard. No process is evicted from a
//     queue while its term lasts by its own clock.
//   - I5: a transaction commits only while its lock is held. Fences of commits do not fall.
//   - I6: a ghost disappears within a tick and a command.
//   - I7: without further faults a waiter gets a place in the queue in time, a lock that is free or
//     has a dead holder goes to a waiter in time, and the waiter learns of the grant in time.
//   - I8: an orderly Close leaves no session and no ping.
//   - order: no waiter is overtaken.
//   - lost: a lost guard stays lost and is not returned to a caller. No guard is lost while its
//     pings are answered, its lease lasts and its lock was not taken.
//   - lease: no guard is trusted after its lease has expired. A takeover by lease names the last
//     renewal.
//   - rule: the contender's snapshots allow its takeover. The function [reference] checks this.
//   - truth: an error names a holder, a limit or a deadlock that existed at an instant of the call.
//     A Release that returns nil has ended a tenure without a gap. Without a fault no call reports
//     a fault.
//   - prompt: a call returns when its context is done or its time is up.
//
// # Packages built on the lock
//
// The random walks of elections, loops and schedules are in this package, those of rows in package
// claim. The same faults strike the commands of their stores, see [User.Command], and their
// functions kill their processes. At most one term, round, slot or handler of a row trusts its lock.
//
// # Limits
//
// Events happen one at a time, so the simulation does not search for data races. The race detector
// does that. The rates of two clocks differ by a factor of at most 1.2, as the guarantee assumes,
// except in tests that ask for more. The simulation does not use an operator's Break, which by
// design lets two holders in.
package simulation
