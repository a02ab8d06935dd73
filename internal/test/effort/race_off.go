//go:build !race

package effort

// Race says that this program was built with the race detector.
const Race = false
