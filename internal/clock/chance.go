package clock

import "math/rand/v2"

// Chance returns a random number in [0, 1), which spreads waiting times. The clock of a simulation
// derives it from a seed.
func Chance(c Clock) float64 {
	if own, ok := c.(interface{ Jitter() float64 }); ok {
		return own.Jitter()
	}
	return rand.Float64()
}
