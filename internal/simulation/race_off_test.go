//go:build !race

package simulation_test

// raceDetector says that this program was built with the race detector.
const raceDetector = false
