// Package mutant lists mistakes that are easily made in a distributed lock and in the packages
// built on it. Each mistake has a test that notices it.
//
// A mistake replaces one string in one file. The shipped code contains no mistakes: they are in
// copies of the files, which go test -overlay compiles. A test program contains many mistakes, and
// each run makes one of them.
package mutant

import "slices"

// A Mistake is a deliberate error in the code.
type Mistake struct {
	Name string

	File string // path from the root of the module
	Old  string // a string that occurs exactly once in the file
	New  string // replaces Old

	// Package is the folder of the test that must fail, and Test is its function.
	Package, Test string
	// Rule is a string in the message of the failing test.
	Rule string
}

// All returns all mistakes. The number of a mistake is its index plus 1.
func All() []Mistake { return slices.Concat(all, ofClaim, ofMetrics, ofSimulation()) }
