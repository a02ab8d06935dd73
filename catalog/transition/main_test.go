package transition_test

import (
	"testing"

	"mongodlm/internal/test/effort"
)

// TestMain runs 1,000 checks of every property unless the command line sets another number, and
// fails if a goroutine is left.
func TestMain(m *testing.M) {
	effort.RapidChecks(1000)
	effort.Main(m)
}
