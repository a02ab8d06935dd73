// Package study plays the lock of mongos, generation by generation, and this module's, in the same
// cases: a clock that is wrong, a process that stands still, a reply that is lost. It is what the
// command study shows, and nothing of it can be imported by users of the lock.
//
// The old generations are gen18.go, gen20.go and gen32.go: a file each, in our own words, over the
// documents of a store in memory. Each step names the line of the server's source that it follows,
// by release (the tags of its repository), file and line. Ours is the package distlock itself.
//
// # Time
//
// A play lives in virtual time. One event at a time happens, and the next one when every goroutine
// is blocked again, so the figures are the same every time. A command is under way for 2 ms, and so
// is its answer; clocks run at the same rate.
//
// # The judge
//
// The outcome is computed and never written down. A process holds the lock from the answer that
// says so until it releases it, dies, or learns that it must not trust it. "Two" is for how long
// two that run were holders at a time; those that stand still do not count, but for ours the tests
// count them as well. "Nobody" is the longest time for which a living process wanted the lock and
// no holder worked. A write is stale that goes in after one of a newer holder. How a lock works is
// not asked.
//
// # Knobs
//
// What a case sets, a reader may set otherwise (knobs.go); Desk serves that, a sweep turns one knob
// until a generation breaks, a search sets them at random in a case in which nothing goes wrong.
//
// # Others
//
// Redlock, an etcd lease and a ZooKeeper node (redlock.go, etcd.go, zookeeper.go) are models of
// what is published of them, as far as OthersCases need them: no member of theirs fails, and a
// watch is a question a second.
//
// # What is not played
//
// What changes no holder: docs/semantics.md names these holes. A lost reply is told at once, as by
// a broken connection, and not after a time limit.
package study
