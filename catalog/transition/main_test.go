package transition_test

import (
	"testing"

	"mongodlm/internal/test/effort"
)

// TestMain runs 500 checks for each property, unless the command line sets another number. It
// fails if a goroutine is left at the end.
func TestMain(m *testing.M) {
	effort.RapidChecks(500)
	effort.Main(m)
}
