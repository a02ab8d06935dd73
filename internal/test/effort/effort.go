// Package effort runs the tests of a package and limits their work. With the race detector, each
// step of a test takes five to ten times as long. Random tests then make a sixth of their attempts.
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

// Share returns n. In a program with the race detector, it returns a sixth of n, but at least 1.
func Share(n int) int {
	if !Race {
		return n
	}
	return max(1, n/6)
}

// RapidChecks sets the number of checks of package rapid to Share(n). Call it in TestMain before
// flags are parsed, so that the command line can override the number.
func RapidChecks(n int) { set("rapid.checks", Share(n)) }

// AtOnce sets the number of tests that run in parallel. The number can be large if the tests mostly
// wait for processes and servers. Call AtOnce in TestMain before flags are parsed.
func AtOnce(n int) { set("test.parallel", n) }

func set(name string, n int) {
	if err := flag.Set(name, strconv.Itoa(n)); err != nil {
		panic(err) // the test program declares the flag
	}
}
