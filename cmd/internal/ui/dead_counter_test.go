package ui

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"mongodlm/internal/clock"
	"mongodlm/internal/test/assert"
)

// The page shows the present number of dead rows, even if the last request was long ago.
func TestDeadCounter_SeldomRequested_IsRecent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dead := int64(0)
		c := &deadCounter{clock: clock.System(), format: error.Error,
			count: func(context.Context, []string) (int64, error) { return dead, nil }}
		defer c.close()
		for range 3 {
			assert.Equal(t, c.get(t.Context(), nil).value, dead, "%d dead rows, want %d")
			dead += 7
			time.Sleep(time.Hour)
		}
	})
}
