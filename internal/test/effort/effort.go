// Package effort sets the number of attempts of random tests, and runs the tests. The race detector
// makes a step five to ten times as expensive and finds other mistakes: with it tests make a sixth
// of the attempts.
package effort

import (
	"flag"
	"runtime/debug"
	"strconv"

	"go.uber.org/goleak"
)

// Main is the TestMain of a package: it runs the tests, fails if they leave goroutines behind, and
// exits. It makes garbage collection rarer, which saves a quarter of the processor time of a
// simulation.
func Main(m goleak.TestingM) {
	debug.SetGCPercent(500)
	goleak.VerifyTestMain(m)
}

// Share returns n, with the race detector a sixth of it, at least 1.
func Share(n int) int {
	if !Race {
		return n
	}
	return max(1, n/6)
}

// RapidChecks sets the number of checks of package rapid to the Share of n. Call it in TestMain
// before flags are parsed, so that the command line can override it.
func RapidChecks(n int) { set("rapid.checks", Share(n)) }

// AtOnce sets the number of parallel tests, for tests that wait for processes and servers. Call it
// in TestMain before flags are parsed.
func AtOnce(n int) { set("test.parallel", n) }

func set(name string, n int) {
	if err := flag.Set(name, strconv.Itoa(n)); err != nil {
		panic(err) // the program of the caller declares the flag
	}
}
