// Package effort says how much the tests try. The race detector makes a step five to ten times as
// expensive and looks for other mistakes than the tests' own searches do: with it they search a
// sixth.
package effort

import (
	"flag"
	"strconv"
)

// Share is n, and with the race detector a sixth of it, at least 1.
func Share(n int) int {
	if !Race {
		return n
	}
	return max(1, n/6)
}

// RapidChecks makes package rapid try a property that often, or its Share. It is for TestMain,
// before flags are parsed, so that the command line has the last word.
func RapidChecks(n int) error { return flag.Set("rapid.checks", strconv.Itoa(Share(n))) }
