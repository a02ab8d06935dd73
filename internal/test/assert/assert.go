// Package assert compares errors and values in tests. Value and the functions with the prefix Must
// end the test on failure; the others let it continue.
package assert

import (
	"errors"
	"slices"
	"testing"
)

// NoErr fails the test if there is an error. The message begins with the strings of what.
func NoErr(tb testing.TB, err error, what ...string) {
	tb.Helper()
	if err != nil {
		tb.Error(told(err, what)...)
	}
}

// Must is [NoErr] for an error that makes the rest of the test useless.
func Must(tb testing.TB, err error, what ...string) {
	tb.Helper()
	if err != nil {
		tb.Fatal(told(err, what)...)
	}
}

// Value returns the value of a call that must not fail: assert.Value(f())(t). It treats the error
// like [Must].
func Value[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		Must(tb, err)
		return v
	}
}

func told(err error, what []string) []any {
	var all []any
	for _, w := range what {
		all = append(all, w+":")
	}
	return append(all, err)
}

// Is fails the test unless [errors.Is] reports that the error matches target.
func Is(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Errorf("error is %v, want one that matches %v", err, target)
	}
}

// MustBe is [Is] for an error that the rest of the test requires.
func MustBe(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Fatalf("error is %v, want one that matches %v", err, target)
	}
}

// Err returns the error of a call that also returns a value.
func Err[T any](_ T, err error) error { return err }

// Equal fails the test unless got equals want. The format takes got, then want.
func Equal[T comparable](tb testing.TB, got, want T, format string) {
	tb.Helper()
	if got != want {
		tb.Errorf(format, got, want)
	}
}

// MustEqual is [Equal] for values that the rest of the test requires.
func MustEqual[T comparable](tb testing.TB, got, want T, format string) {
	tb.Helper()
	if got != want {
		tb.Fatalf(format, got, want)
	}
}

// Slices is [Equal] for the elements of two slices.
func Slices[T comparable](tb testing.TB, got, want []T, format string) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Errorf(format, got, want)
	}
}
