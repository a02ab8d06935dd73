package transition_test

import (
	"testing"

	"mongodlm/internal/test/effort"
)

// TestMain runs 1,000 checks of every property, or the number on the command line. It fails if a
// goroutine is left.
func TestMain(m *testing.M) {
	effort.RapidChecks(1000)
	effort.Main(m)
}
