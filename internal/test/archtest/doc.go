// Package archtest tests rules of this repository: the imports of its packages, the places that
// read the clock, the examples of the README, and the names in the documents. The package contains
// only tests.
package archtest
