// Package study plays the lock of each generation of mongos, and the lock of this module, in the
// same cases: a wrong clock, a frozen process, a lost reply.
//
// The old generations are gen18.go, gen20.go and gen32.go. They are new implementations that use a
// store in memory. Each step names the line of the server's source that it follows, by release (a
// tag of its repository), file and line. The last generation is package distlock itself.
//
// # Time
//
// A play uses virtual time. The next event happens when every goroutine is blocked. The figures are
// therefore the same in every run. A command takes 2 ms to the server, and its answer takes 2 ms
// back. All clocks run at the same rate.
//
// # The judge
//
// The judge computes the outcome. A process holds the lock from the answer of its acquisition until
// it releases the lock, dies, or learns that it must not trust the lock. "TWO" is the time during
// which two running processes were holders. It does not count frozen processes, but the tests of
// this module's lock do. "Idle" is the longest time during which a living process wanted the lock
// and no holder worked. A write is stale if the resource accepts it after a write of a newer
// holder.
//
// # Cases
//
// cases.txt contains the cases with their verdicts. A test compares the verdicts with the plays. A
// reader may set knobs of a case differently (knobs.go). A sweep turns one knob until a generation
// breaks.
//
// # Limits
//
// A lost reply is reported immediately, like a broken connection, and not after a time limit. If
// both a reply and its time limit come while a process is frozen, both outcomes are played.
package study
