package memrows

import (
	"testing"

	"mongodlm/internal/rows"
	"mongodlm/internal/test/effort"
	"mongodlm/internal/test/rowstest"
)

func TestMain(m *testing.M) { effort.Main(m) }

func TestMemory_Conforms(t *testing.T) {
	t.Parallel()
	rowstest.Run(t, func(*testing.T) rows.Store { return New() })
	rowstest.RunChains(t, func(_ *testing.T, key string, letGo bool) rows.Store {
		return New().Keyed(key, letGo)
	})
	rowstest.RunDue(t, func(_ *testing.T, field string) rows.Store { return New().Due(field) })
}
