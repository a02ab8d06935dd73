package claim

import (
	"context"
	"fmt"
	"time"

	"mongodlm/internal/rows"
)

// purgeLots is how many thousand rows that are done one round of the rescuer removes at most: so
// the rest of its work is held up for a few seconds at worst.
const purgeLots = 20

// purgeDone removes rows that have been done for longer than Config.KeepDone. Nothing without that;
// else one command, and two for a thousand rows.
func (e *engine) purgeDone(ctx context.Context) error {
	if e.cfg.KeepDone == 0 {
		return nil
	}
	now, err := e.serverNow(ctx)
	if err != nil {
		return err
	}
	before := now.Add(-e.cfg.KeepDone)
	for range purgeLots {
		n, err := e.purgeLot(ctx, before)
		if err != nil {
			return fmt.Errorf("claim: remove rows that are done: %w", err)
		}
		if n == 0 {
			return nil
		}
		e.log.Debug().Int("rows", n).Msg("rows that were done were removed")
	}
	return nil
}

func (e *engine) purgeLot(ctx context.Context, before time.Time) (int, error) {
	ctx, done := context.WithTimeout(ctx, 2*e.limit)
	defer done()
	return e.store.Purge(ctx, rows.Done, before)
}
