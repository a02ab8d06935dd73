//go:build !race

package configserver_test

// defaultRounds of each of the two kinds of race make 500.
const defaultRounds = 250
