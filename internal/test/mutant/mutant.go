// Package mutant lists mistakes that are easily made in a distributed lock and in the packages
// built on it. Each mistake has a test that notices it.
//
// A mistake replaces one string in one file. The mistakes are made in copies of the files. The
// command "go test -overlay" compiles the copies instead of the originals. A test program contains
// many mistakes, and each run of the program makes one of them.
package mutant

import (
	"cmp"
	"path"
	"slices"
)

// A Mistake is a deliberate error in the code.
type Mistake struct {
	Name string

	File string // path from the root of the module
	Old  string // a string that occurs exactly once in the file, in the body of a function
	New  string // replaces Old

	// Test is the test function that must fail. Package is its folder, by default that of File.
	Package, Test string
	// Rule is a string in a message of the failing test.
	Rule string
	// From is the seed of the first random walk. 0 means 1.
	From int
}

// All returns all mistakes. The number of a mistake is its index plus 1.
func All() []Mistake {
	found := slices.Concat(all, ofSimulation())
	for i, m := range found {
		found[i].Package = cmp.Or(m.Package, path.Dir(m.File))
	}
	return found
}
