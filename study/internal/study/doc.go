// Package study simulates how the lock of mongos and the lock of this module behave in the same
// cases: a wrong clock, a frozen process, a lost reply. A generation is a version of the lock
// protocol: one for each range of mongos releases with the same protocol, and one for this module.
//
// The files gen18.go, gen20.go and gen32.go imitate the old generations, with a store in memory.
// Each step names its original in the server's source: the release, the file and the line. A
// release is a tag of the server's repository.
//
// # Time
//
// A play is a simulation of one case by one generation. It uses virtual time: the next event
// happens when every goroutine is blocked. The figures are therefore the same in every run. A
// command takes 2 ms to the server, and its reply takes 2 ms back. All clocks run at the same rate.
//
// # The judge
//
// The judge computes the outcome. A process holds the lock from the reply to its acquisition until
// it releases the lock, dies, or learns that it must not trust the lock. "TWO" is the time during
// which two running processes were holders. The outcome does not count frozen processes, but the
// tests of this module's lock count them. "Idle" is the longest time during which a living process
// wanted the lock and no holder worked. A write is stale if the resource accepts it after a write
// of a newer holder.
//
// # Cases
//
// The file cases.txt contains the cases with their verdicts. A test compares the verdicts with the
// plays. A knob is a setting of a case, such as the error of a clock. A reader may change the knobs
// of a case (knobs.go). A sweep increases the value of one knob until a generation breaks.
//
// # Limits
//
// A lost reply is reported immediately, like a broken connection, and not after a time limit. If a
// reply arrives and its time limit ends while the process is frozen, the case is played in both
// orders.
package study
