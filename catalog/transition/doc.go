// Package transition is the rule by which the holders and the waiters of a lock document follow
// each other: pure, without a store and without a clock of its own. It is the one definition.
// memcatalog carries it out under a mutex, mongocatalog as a compare-and-set; the short commands
// that mongocatalog has for the common cases are tested against it.
//
// A transition is always the same four steps, whatever called for it:
//
//  1. a session leaves: released, given up, or evicted;
//  2. a session enters at the end of the line, if it stands nowhere in the document yet;
//  3. as many from the front of the line as the holders allow become holders, each with a fence of
//     its own;
//  4. one that only tried and was not granted leaves again, and nothing was changed.
//
// So the line never stands still while the lock is free, nobody is overtaken, and a reader that
// comes after a waiting writer waits behind it.
//
// An exclusive holder stands in the top-level fields alone, as mongos wrote them. Of shared holders
// and holders of permits all stand in sharers, and the first of them in the top-level fields as
// well.
package transition
