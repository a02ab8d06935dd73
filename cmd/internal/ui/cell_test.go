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
func TestCell_OldValue_IsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Server{clock: clock.System(), ctx: t.Context()}
		c := cell[int64]{keep: keepDead, share: busyShare, wait: countWait}
		dead := int64(0)
		for range 3 {
			got := c.get(t.Context(), s, func(context.Context) (int64, error) { return dead, nil })
			assert.Equal(t, got.value, dead, "%d dead rows, want %d")
			dead += 7
			time.Sleep(time.Hour)
		}
	})
}
