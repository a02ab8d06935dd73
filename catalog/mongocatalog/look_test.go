package mongocatalog_test

import (
	"fmt"
	"strings"
	"testing"
)

// It tries to break: a look that fails says so in a line, however many locks it was for.
func TestSnapshots_OfManyFails_NamesAFew(t *testing.T) {
	t.Parallel()
	s := serve(t, failure(13, "not allowed"))
	for n, want := range map[int]string{
		1: `"a0"`, 3: `"a0", "a1", "a2":`, 10_000: `"a0", "a1", "a2" and 9997 more:`,
	} {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint("a", i))
		}
		_, err := ownStore(t, s).Snapshots(t.Context(), names)
		if err == nil || len(err.Error()) > 400 || !strings.Contains(err.Error(), "look at "+want) {
			t.Errorf("of %d names: %.300v", n, err)
		}
	}
}
