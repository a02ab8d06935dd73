//go:build !race

package effort

// Race reports whether this program was built with the race detector.
const Race = false
