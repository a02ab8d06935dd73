// Package effort sets the number of attempts of random tests, and runs the tests. With the race
// detector each step takes five to ten times as long, so the tests make a sixth of the attempts.
package effort

import (
	"flag"
	"runtime/debug"
	"strconv"

	"go.uber.org/goleak"
)

// Main is the TestMain of a package. It runs the tests, fails if they leave goroutines behind, and
// exits. It makes garbage collection rarer, to save processor time.
func Main(m goleak.TestingM) {
	debug.SetGCPercent(500)
	goleak.VerifyTestMain(m)
}

// Share returns n. With the race detector it returns a sixth of n, at least 1.
func Share(n int) int {
	if !Race {
		return n
	}
	return max(1, n/6)
}

// RapidChecks sets the number of checks of package rapid to Share(n). Call it in TestMain before
// flags are parsed, so that the command line can override the number.
func RapidChecks(n int) { set("rapid.checks", Share(n)) }

// AtOnce sets the number of parallel tests. It is for tests that wait for processes and servers.
// Call it in TestMain before flags are parsed.
func AtOnce(n int) { set("test.parallel", n) }

func set(name string, n int) {
	if err := flag.Set(name, strconv.Itoa(n)); err != nil {
		panic(err) // the test program declares the flag
	}
}
