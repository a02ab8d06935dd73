//go:build race

package integration_test

// raceDetector says that this program was built with the race detector.
const raceDetector = true
