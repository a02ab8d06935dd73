package clock

import "math/rand/v2"

// Chance returns a number in [0, 1), by which waiting is spread: math/rand's, or what a clock of a
// simulation brings, which has it from a seed.
func Chance(c Clock) float64 {
	if own, ok := c.(interface{ Jitter() float64 }); ok {
		return own.Jitter()
	}
	return rand.Float64()
}
