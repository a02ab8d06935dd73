// Package archtest holds the rules of this repository that a test can check: which package may
// import which, where the clock is read, that the README shows code that runs, that what the
// documents name exists. It has tests only.
package archtest
