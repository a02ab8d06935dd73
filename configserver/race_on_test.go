//go:build race

package configserver_test

// defaultRounds is smaller under the race detector, which makes a command five times as expensive.
const defaultRounds = 60
