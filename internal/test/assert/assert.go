// Package assert checks errors and values in tests. On failure, Value and the functions whose names
// begin with Must end the test. With the other functions, the test continues.
package assert

import (
	"errors"
	"slices"
	"testing"
)

// NoErr fails the test if err is not nil. The given texts precede the error in the message.
func NoErr(tb testing.TB, err error, what ...string) {
	tb.Helper()
	if err != nil {
		tb.Error(told(err, what)...)
	}
}

// Must is like [NoErr], but ends the test.
func Must(tb testing.TB, err error, what ...string) {
	tb.Helper()
	if err != nil {
		tb.Fatal(told(err, what)...)
	}
}

// Value returns a function that ends the test if err is not nil, and otherwise returns v. The usual
// call is assert.Value(f())(t).
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

// Is fails the test if err does not match target, see [errors.Is].
func Is(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Errorf("error is %v, want one that matches %v", err, target)
	}
}

// MustBe is like [Is], but ends the test.
func MustBe(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Fatalf("error is %v, want one that matches %v", err, target)
	}
}

// Err returns the error of a call that also returns a value.
func Err[T any](_ T, err error) error { return err }

// Equal fails the test if got and want differ. The message is made from format, got and want, in
// this order.
func Equal[T comparable](tb testing.TB, got, want T, format string) {
	tb.Helper()
	if got != want {
		tb.Errorf(format, got, want)
	}
}

// MustEqual is like [Equal], but ends the test.
func MustEqual[T comparable](tb testing.TB, got, want T, format string) {
	tb.Helper()
	if got != want {
		tb.Fatalf(format, got, want)
	}
}

// Slices is like [Equal], but for slices.
func Slices[T comparable](tb testing.TB, got, want []T, format string) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Errorf(format, got, want)
	}
}
