// Package study plays the lock of mongos, generation by generation, and the lock of this module in
// the same cases: a wrong clock, a frozen process, a lost reply.
//
// The old generations are gen18.go, gen20.go and gen32.go, written anew over the documents of a
// store in memory. Each step names the line of the server's source that it follows, by release (a
// tag of its repository), file and line. The last generation is the package distlock itself.
//
// # Time
//
// A play lives in virtual time. One event at a time happens, and the next one when every goroutine
// is blocked again, so the figures are the same every time. A command takes 2 ms to the server, and
// its answer 2 ms back; clocks run at the same rate.
//
// # The judge
//
// The outcome is computed. A process holds the lock from the answer of its acquisition until it
// releases it, dies, or learns that it must not trust it. "TWO" is the time in which two running
// processes were holders; a frozen process does not count there, but the tests count it for ours.
// "Idle" is the longest time in which a living process wanted the lock and no holder worked. A
// write is stale if the resource accepts it after one of a newer holder.
//
// # Cases
//
// cases.txt has the cases with their verdicts; a test compares them with the plays. A reader may
// set knobs of a case differently (knobs.go), and a sweep turns one until a generation breaks.
//
// # Limits
//
// A lost reply is reported immediately, as by a broken connection, and not after a time limit.
// Where a reply races a limit, because its process was frozen, both outcomes are played.
package study
