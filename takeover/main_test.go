package takeover_test

import (
	"testing"

	"mongodlm/internal/test/effort"
)

// TestMain makes every property stand 10,000 checks unless the command line says otherwise, and
// fails when a goroutine remains.
func TestMain(m *testing.M) {
	effort.RapidChecks(10000)
	effort.Main(m)
}
