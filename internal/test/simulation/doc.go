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
// A fault of a command may:
//   - delay the request or the reply
//   - refuse the command or drop it
//   - apply it and lose the reply
//   - apply it late, seconds or hours after the caller gave up
//   - apply it twice
//   - answer a read with an old state
//   - kill or stop the process before or after the command
//
// At any time:
//   - a process may be killed, closed, stopped, suspended with its monotonic clock, cut off in one
//     or both directions, or left without replies
//   - the contexts of a process's calls may end
//   - the wall clock of a process or of the server may step
//   - another primary may be elected
//   - a free lock document may be deleted
//
// MongoDB's own lock manager may run at the same time, see [Foreign].
//
// Queued waiters learn of their grants by polling. If the schedule sets Streams, they learn of them
// from a stream of notices. A notice is an event, and the faults of a command strike it: it may be
// late, or the stream breaks and the notice is lost. A stream may be severed at any time.
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
//   - I5: accepted fences do not fall.
//   - I6: a ghost disappears within a tick and a command.
//   - I7: without further faults, a lock that is free or has a dead holder goes to a waiter in
//     time, and the waiter learns of the grant in time.
//   - I8: an orderly Close leaves no session and no ping.
//   - order: no waiter is overtaken.
//   - twin: a process that has learned of its twin, or has expired, takes no lock from the twin.
//   - identity: a process changes its process id only for a reason.
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
// Liveness (I7) covers queued waiters and callers that poll.
//
// # Packages built on the lock
//
// The random walks of elections, loops and schedules are in this package. The walks of rows are in
// package claim. The same faults strike the commands of their stores, see [User.Command], and their
// functions kill their processes. Their oracles check after every event that at most one term,
// round, slot or handler of a row trusts its lock. In the end all possible work is done, each row
// was marked done once, and a row is dead only after its allowed number of attempts. If a claim
// draws lots, the same seed may have several timelines.
//
// # Limits
//
// Events happen one at a time, so the simulation does not search for data races. The race detector
// does that. The rates of two clocks differ by a factor of at most 1.2, as the guarantee assumes,
// except in tests that ask for more. The simulation does not use an operator's Break, which by
// design lets two holders in.
package simulation
