package clock

import "math/rand/v2"

// Chance returns a random number in [0, 1). Callers use it to spread waiting times. In a simulation
// the clock derives the number from a seed.
func Chance(c Clock) float64 {
	if own, ok := c.(interface{ Jitter() float64 }); ok {
		return own.Jitter()
	}
	return rand.Float64()
}
