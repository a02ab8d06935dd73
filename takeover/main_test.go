package takeover_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"mongodlm/internal/test/effort"
)

// TestMain makes every property stand 10,000 checks unless the command line says otherwise, and
// fails when a goroutine is left.
func TestMain(m *testing.M) {
	if err := effort.RapidChecks(10000); err != nil {
		os.Stderr.WriteString("no such flag: rapid.checks\n")
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
