// Package effort says how much the tests try, and runs them. The race detector makes a step five to
// ten times as expensive and looks for other mistakes than the tests' own searches do: with it they
// search a sixth.
package effort

import (
	"flag"
	"runtime/debug"
	"strconv"

	"go.uber.org/goleak"
)

// Main is the TestMain of a package: it runs the tests, looks for goroutines that they left behind,
// and exits. Their heaps are small and soon garbage, so that it is collected more rarely than in
// other programs; that saves a quarter of the time that a simulation takes of a processor.
func Main(m goleak.TestingM) {
	debug.SetGCPercent(500)
	goleak.VerifyTestMain(m)
}

// Share is n, and with the race detector a sixth of it, at least 1.
func Share(n int) int {
	if !Race {
		return n
	}
	return max(1, n/6)
}

// RapidChecks makes package rapid try a property that often, or its Share. It is for TestMain,
// before flags are parsed, so that the command line has the last word.
func RapidChecks(n int) { set("rapid.checks", Share(n)) }

// AtOnce lets so many tests run in parallel, which wait for processes and servers and not for the
// processor. As RapidChecks it is for TestMain, before flags are parsed.
func AtOnce(n int) { set("test.parallel", n) }

func set(name string, n int) {
	if err := flag.Set(name, strconv.Itoa(n)); err != nil {
		panic(err) // whoever calls has a package that declares it
	}
}
