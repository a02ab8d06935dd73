// Package mutant lists mistakes that are easily made in a distributed lock and in the packages
// built on it. Each mistake has a test that detects it.
//
// A mistake replaces one string in one file. A test adds the mistakes to copies of the files and
// compiles the copies with go test -overlay, so the shipped code contains no mistakes. One program
// contains many mistakes. Each run of the program makes one of them.
package mutant

import "slices"

// A Mistake is one deliberate error in the code.
type Mistake struct {
	Name string

	File string // path from the root of the module
	Old  string // a string that occurs exactly once in the file
	New  string // replaces Old

	// Package is the folder of the test that must fail. Test is its function.
	Package, Test string
	// Rule is a string that the failing test prints.
	Rule string
}

// All returns the mistakes by number.
func All() []Mistake { return slices.Concat(all, ofClaim, ofMetrics, ofSimulation()) }
