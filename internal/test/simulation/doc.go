// Package simulation runs the real code of distlock, pinger and takeover in several simulated
// processes over one in-memory store, in virtual time, and searches for a schedule that breaks a
// guarantee of the lock.
//
// A [Schedule] is plain data: the processes and their clocks, the actions of the users, and a list
// of faults. [Run] plays it and returns a [Result] with the violations found. A process acts only
// when one of its timers fires or one of its commands is answered. Both go through one queue of
// events, which hands out one event at a time and waits until every goroutine is blocked again. So
// the schedule chooses the order of the events of one instant. Where one event wakes two goroutines
// of a process, Go's scheduler decides which of them is first: a schedule may therefore have a few
// timelines.
//
// # Faults
//
// A fault of a command may delay the request or the reply, refuse it, drop it, apply it and lose
// the reply, apply it late (seconds or hours after the caller gave up), apply it twice, answer a
// read with an old state, or kill or stop the process before or after it. At any time a process may
// be killed, closed, stopped, suspended with its monotonic clock, cut off in one or both
// directions, or left without replies; the contexts of its calls may end; its wall clock or the
// server's may step; another primary may be elected; a free lock document may be deleted. MongoDB's
// own lock manager may run at the same time, see [Foreign].
//
// Queued waiters learn of their grants by polling or, with the field Streams of the schedule, from
// a stream of notices. A notice is an event that meets the faults of a command: it may be late, or
// the stream breaks and the notice is lost. A stream may be severed at any time.
//
// # Oracles
//
// The oracles run after every event. They check these rules:
//
//   - I1: at most one exclusive guard of a name is trusted, and then no other guard; and no more
//     permits than the limit. Each guard is asked by the clock of its own process.
//   - I2: fences rise.
//   - I3: no conditional write touches another session's document or moves another session in it.
//   - I4: the loser of a takeover has stopped trusting its guard before, and no process that lives
//     by its own clock is evicted from a queue.
//   - I5: accepted fences do not fall.
//   - I6: a ghost lives no longer than a tick and a command.
//   - I7: without further faults, a wanted lock that is free or has a dead holder is taken in time,
//     and a waiter learns of its grant in time.
//   - I8: an orderly Close leaves no session and no ping.
//   - order: no waiter is overtaken.
//   - twin: of two processes with one id, the one that has learned of the other, or has expired,
//     takes no lock from the other.
//   - identity: a process changes its process id only for a reason.
//   - lost: a lost guard stays lost and is not returned to a caller, and no guard is lost while its
//     pings are answered, its lease lasts and its lock was not taken.
//   - lease: no guard is trusted after its lease has expired, and a takeover by lease names the
//     last renewal.
//   - rule: a takeover is based on snapshots that the rule allows, checked again by [reference].
//   - truth: an error names a holder, a limit or a deadlock that existed at an instant of the call,
//     a Release that returns nil has ended a tenure without a gap, and without a fault no call
//     reports one.
//   - prompt: a call returns when its context is done or its time is up.
//
// Liveness (I7) covers queued waiters and callers that poll.
//
// # Packages built on the lock
//
// The random walks of elections, loops and schedules are in this package, the walks of rows in
// package claim. The commands of their stores meet the same faults, see [User.Command], and their
// own work kills their processes. Their oracles check after every event that no two terms, rounds,
// slots or handlers of a row trust their lock. In the end all possible work is done, each row was
// marked done once, and a row is dead only after its allowed number of attempts. Where a claim
// draws lots, a seed has other timelines.
//
// # Limits
//
// One event at a time means that data races are not searched for; the race detector does that.
// Rates of clocks stay within a ratio of 1.2, as the guarantee assumes, unless a test asks for
// more. An operator's Break lets two holders in by design and is not used.
package simulation
