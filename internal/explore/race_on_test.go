//go:build race

package explore_test

// raceDetector says that this program was built with the race detector.
const raceDetector = true
