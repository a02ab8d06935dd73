// Package mutant lists mistakes that are easily made in a distributed lock and in the packages
// built on it, each with the test that detects it.
//
// A mistake replaces one text in one file. A test adds the mistakes to copies of the files and
// compiles them with go test -overlay, so the shipped code does not know them. One program contains
// many mistakes and makes one of them in each run.
package mutant

import "slices"

// A Mistake is one deliberate error in the code.
type Mistake struct {
	Name string

	File string // path from the root of the module
	Old  string // occurs exactly once in the file
	New  string // replaces Old

	// Package and Test name the test that must fail: its folder and its function.
	Package, Test string
	// Rule is a text that the failing test prints.
	Rule string
}

// All returns the mistakes in the order of their numbers.
func All() []Mistake { return slices.Concat(all, ofClaim, ofMetrics, ofSimulation()) }
