// Package simulation runs the real code of distlock, pinger and takeover in several simulated
// processes, in virtual time. The processes use one store in memory. Tests search for a schedule
// that breaks a guarantee of the lock.
//
// A [Schedule] is plain data: the processes, their clocks, their users, and a list of faults. [Run]
// runs a schedule and returns a [Result] with the violations.
//
// A process acts only when one of its timers fires or one of its commands is answered. Both are
// events. The event loop runs one event at a time, and then waits until every goroutine is blocked.
// So the schedule determines the order of simultaneous events. If one event wakes two goroutines of
// a process, Go's scheduler determines their order. So several runs of a schedule can have
// different timelines.
//
// Each process of a schedule has a place, which is its index. When the process has ended, a new
// process can start in the same place.
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
// The oracle checks these rules during the run:
//
//   - I1: While an exclusive guard is trusted, no other guard of the lock is trusted. The
//     number of trusted permits never exceeds the limit. Each guard is judged by the
//     clock of its process.
//   - I2: Fences rise.
//   - I3: A conditional write changes only the session that it names.
//   - I4: A guard is lost before its session is evicted. A waiter is evicted only after
//     the term of its process has expired by the clock of that process.
//   - I5: A transaction commits only while its session holds the lock. The fences of
//     successive commits never become smaller.
//   - I6: If a live process does not know of one of its sessions, that session is a
//     ghost. A ghost leaves the lock in time.
//   - I7: A waiter enters the queue in time. A lock that is free or has a dead holder
//     goes to a waiter in time. The waiter learns of its grant in time.
//   - I8: Close leaves no session and no ping.
//   - order: No waiter is overtaken.
//   - lost: A lost guard stays lost, and no call returns it. A guard is not lost while
//     the pings of its process are acknowledged, its lease lasts and its session holds
//     the lock.
//   - lease: No guard is trusted after its lease has expired. A takeover by lease names
//     the last renewal.
//   - rule: The snapshots that a contender has read allow its takeover, see [reference].
//   - truth: The holder, limit or deadlock that an error reports existed during the
//     call. If Release returns nil, the session held the lock until the call of Release.
//     In a run without faults, no call reports a fault.
//   - prompt: A call returns at the latest when its context is done or its time limit is
//     reached.
//
// "In time" means within a time limit, which starts again at each fault.
//
// # Packages built on the lock
//
// Random walks also test packages built on the lock. This package contains the walks of elections,
// loops and schedules, and package claim contains the walks of rows. The same faults strike the
// commands to the stores of those packages, see [User.Command]. A function of a user may kill its
// process. At most one term, round, slot or handler of a row may trust its lock.
//
// # Limits
//
// Events happen one at a time, so the simulation finds no data races. The rates of two clocks
// differ by a factor of at most 1.2, except in tests of the bound. The simulation does not use
// [distlock.Inspector.Break], because a break can let two holders in.
package simulation
