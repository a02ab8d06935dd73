package transition_test

import (
	"testing"

	"mongodlm/internal/test/effort"
)

// TestMain sets 1,000 checks for every property; the command line may set another number. It fails
// if a goroutine is left at the end.
func TestMain(m *testing.M) {
	effort.RapidChecks(1000)
	effort.Main(m)
}
