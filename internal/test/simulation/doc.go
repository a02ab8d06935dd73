// Package simulation runs the real code of distlock, pinger and takeover in several simulated
// processes over one store in memory, in virtual time, and looks for a schedule that breaks a
// promise of the lock.
//
// A [Schedule] is plain data: who takes part, by which clocks, what the users do, and a list of
// faults. [Run] plays it and returns a [Result] with the violations found. A process does nothing
// unless one of its timers fires or one of its commands is answered, and both go through one queue
// of events that hands out one at a time and waits until everybody is blocked again. So the order
// of events of one instant is a choice of the schedule. Where one event wakes two goroutines of a
// process, Go's scheduler decides which of them is first: a schedule may therefore have a few
// timelines.
//
// # Faults
//
// At every command a fault may delay the request or the reply, refuse it, drop it, apply it and
// lose the reply, apply it late, after the caller gave up, by seconds or by hours, apply it twice,
// answer a read with an old state, kill the process before or after, or stop it there. At any time
// a process may be killed, closed, stopped, suspended with its monotonic clock, cut off in both
// directions or in one, or be left without answers, the contexts of its calls may end, its wall
// clock or the server's may step, another primary may be elected, a free lock document may be
// deleted. MongoDB's own lock manager may work beside the processes, see [Foreign].
//
// Contenders that wait in line hear of their grants by asking or, where the field Streams of the
// schedule says so, by a stream of notices. Each notice is an event that meets the faults of a
// command: it may be late, or the stream breaks and the notice is lost with it. A stream may be
// severed at any time.
//
// # Oracles
//
// After every event: at most one exclusive guard of a name is trusted and nobody beside it, and no
// more permits than there are, each asked by the clock of its own process (I1); fences rise (I2);
// no conditional write touches another session's document or moves another session in it (I3); the
// loser of a takeover had lost its trust before, and nobody who lives by its own clock is taken out
// of a line (I4); accepted fences do not fall (I5); a ghost lives no longer than a tick and a
// command (I6); a dead holder's lock and a free lock are taken, and a waiter hears of its grant, in
// time while nothing else goes wrong (I7); an orderly Close leaves nothing (I8); nobody in a line
// is overtaken ("order"); of two processes with one id the one that has learned of the other, or
// whose time is over, takes nothing from it ("twin"); nobody gives its process id up without a
// reason ("identity"); a lost guard stays lost, none is handed out, and none is lost while its
// pings are answered, its lease lasts and nobody took its lock; no guard is trusted when its lease
// has run out, and none is taken by another renewal than the last ("lease"); a takeover stands on
// looks that the rule allows, told again by [reference].
//
// Liveness holds for every way to contend: whatever dies, whoever waits for a lock that no live
// process holds has it in time, and whoever calls for it again and again has. Of those who wait for
// one another somebody is told.
//
// Callers are told the truth ("truth"): an error names a holder, a limit or a circle that there was
// at an instant of the call, a Release that returns nil has ended a tenure without a gap, and where
// nothing went wrong nobody is told that something has. And they are told in time ("prompt"): a
// call returns when its context or its time has ended.
//
// # What is built on the lock
//
// Elections, loops and schedules walk in this package, rows in package claim: their stores'
// commands meet the same faults, see [User.Command], and their processes are killed by what they
// work on. Their oracles, after every event: never do two terms, rounds, slots or handlers of a row
// believe in their lock; in the end everything that can be done is done, each row was marked done
// once, and none is dead that was not begun as often as it may be. Where a claim draws lots a seed
// has other timelines.
//
// # What is not shown
//
// One event at a time means that no data race is looked for; the race detector does that. Rates of
// clocks stay within a ratio of 1.2, as the promise assumes, unless a test asks for more. An
// operator's Break lets two holders in by design and is not used.
package simulation
