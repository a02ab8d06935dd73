// Package archtest tests rules of this repository: the imports of its packages, the places that
// read the clock, the examples of the README, and the names in the documents. It has tests only.
package archtest
