// Package mutant is the list of the mistakes with which a distributed lock is most easily built,
// each with the schedule of package simulation that notices it and the oracle that fires there.
//
// A mistake is what a hand could have written: a file, a text that stands in it exactly once, and
// the text in its place. A test lays changed files over the real ones, with go test -overlay, so
// the code that is shipped knows nothing of it: one program has many mistakes in it, and makes one
// in each run. What a store does wrong, or a server, is made by the store of the simulation, which
// stands under the same code.
package mutant

import (
	"slices"

	"mongodlm/internal/test/simulation"
)

// A Mistake is one thing done wrong, either in a text or by the store.
type Mistake struct {
	Name string

	File string // from the root of the module; empty for one of the store
	Old  string // stands exactly once in the file
	New  string

	Store simulation.StoreMistake // 0 for one of a text

	// Schedule is the name of the one that must fail, see simulation.Named. Empty for a mistake in
	// what is built on the lock: the simulation does not play that.
	Schedule string
	// Package and Test name a test that must fail, where there is no schedule: the folder, and the
	// function.
	Package, Test string
	// Rule is the oracle that must fire first; of a test a text that it says when it fails.
	Rule string
	// Harm is the oracle that must fire besides, where the first one is that which tells the takeover
	// rule again. Empty where another rule stands behind the one that is broken.
	Harm string
}

// All returns the mistakes in the order of their numbers.
func All() []Mistake { return slices.Concat(all, ofClaim, ofMetrics) }
