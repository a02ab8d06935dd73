package takeover_test

import (
	"testing"

	"mongodlm/internal/test/effort"
)

// TestMain runs 10,000 checks of every property by default, and fails if a goroutine is left.
func TestMain(m *testing.M) {
	effort.RapidChecks(10000)
	effort.Main(m)
}
