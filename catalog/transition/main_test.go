package transition_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"mongodlm/internal/test/effort"
)

// TestMain makes every property stand 1,000 checks unless the command line says otherwise, and
// fails when a goroutine is left.
func TestMain(m *testing.M) {
	if err := effort.RapidChecks(1000); err != nil {
		os.Stderr.WriteString("no such flag: rapid.checks\n")
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
