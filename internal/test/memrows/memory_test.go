package memrows

import (
	"testing"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/rowstest"
)

func TestMain(m *testing.M) { effort.Main(m) }

// Memory passes the conformance suite of rows.Store.
func TestMemory_Conforms(t *testing.T) {
	t.Parallel()
	open := func(_ *testing.T, o rows.Options) rows.Store { return New(o) }
	rowstest.Run(t, open)
	rowstest.RunDue(t, open)
	rowstest.RunChains(t, open)
}
