// Package simulation runs the real code of distlock, pinger and takeover in several simulated
// processes, in virtual time. The processes use one store in memory. Tests search for a schedule
// that breaks a guarantee of the lock.
//
// A [Schedule] is plain data: the processes, their clocks, their users, and a list of faults. [Run]
// runs it and returns a [Result] with the violations. A process acts only when one of its timers
// fires or one of its commands is answered. Both are events. The event loop runs one event at a
// time, then waits until every goroutine is blocked. So the schedule determines the order of
// simultaneous events. If one event wakes two goroutines of a process, Go's scheduler determines
// which runs first. A schedule may therefore have a few timelines.
//
// Each process of a schedule has a place, which is its index. If the process ends, a new process
// can start in the same place.
//
// # Faults
//
// A fault can delay, refuse or lose a command, lose its reply, apply it late or twice, or answer a
// read with an old state. It can kill, close, pause or suspend a process, or end the contexts of
// its calls. It can cut a process off from the store, in one or both directions. Clocks can step,
// another primary can be elected, and free lock documents can be deleted. [Kind] lists the faults.
//
// MongoDB's own lock manager may run at the same time. If the schedule sets Streams, waiters learn
// of their grants by a stream of notices. Otherwise they poll.
//
// # Rules
//
// The oracle checks these rules after every event:
//
//   - I1: while an exclusive guard is trusted, no other guard of the lock is trusted. At most as
//     many permits are trusted as the limit. Each guard uses the clock of its process.
//   - I2: fences rise.
//   - I3: a conditional write changes only the session that it names.
//   - I4: a guard is lost before its session is evicted. A waiter is evicted only when the term of
//     its process has expired by the clock of that process.
//   - I5: a transaction commits only while its lock is held. The fences of commits do not fall.
//   - I6: a ghost disappears within a ping interval and a command.
//   - I7: a waiter enters the queue in time. A lock that is free or has a dead holder goes to a
//     waiter in time, and the waiter learns of the grant in time. These limits start again at each
//     fault.
//   - I8: Close leaves no session and no ping.
//   - order: no waiter is overtaken.
//   - lost: a lost guard stays lost, and no call returns it. A guard is not lost while its pings
//     are acknowledged, its lease lasts and the lock is not taken.
//   - lease: no guard is trusted after its lease has expired. A takeover by lease names the last
//     renewal.
//   - rule: the contender's snapshots allow its takeover, see [reference].
//   - truth: a holder, limit or deadlock in an error has existed during the call. If Release
//     returns nil, the session held the lock until then. Without a fault no call reports a fault.
//   - prompt: a call returns when its context is done or its time limit is reached.
//
// # Packages built on the lock
//
// This package contains the random walks of elections, loops and schedules. Those of rows are in
// package claim. The same faults strike the commands to their stores, see [User.Command]. Their
// functions may kill their processes. At most one term, round, slot or handler of a row trusts its
// lock.
//
// # Limits
//
// Events happen one at a time, so the simulation finds no data races. The rates of two clocks
// differ by a factor of at most 1.2, except in tests of the bound. The simulation does not use
// [distlock.Inspector.Break], which lets two holders in.
package simulation
