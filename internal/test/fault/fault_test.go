package fault_test

import (
	"testing"

	"go.uber.org/goleak"

	"mongodlm/catalog"
	"mongodlm/catalog/memcatalog"
	"mongodlm/internal/test/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain is a store that keeps no history.
type plain struct{ catalog.Catalog }

// It tries to break: a wrapped store keeps a history exactly if the store under it does.
func TestWrap_StoreWithoutHistory_HasNone(t *testing.T) {
	t.Parallel()
	mem := memcatalog.New(memcatalog.Options{})
	if _, ok := any(fault.Wrap(plain{mem})).(catalog.History); ok {
		t.Error("it has the methods of a history that nobody keeps")
	}
	kept := fault.WrapKept(mem)
	if _, err := kept.PrepareHistory(t.Context(), 0); err != nil ||
		kept.Count(fault.PrepareHistory) != 1 {
		t.Errorf("prepare: %v, counted %d times", err, kept.Count(fault.PrepareHistory))
	}
}
