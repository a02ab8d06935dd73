package claim

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

var (
	// ErrOver is returned by Cancel when the row is done or dead already, or not there.
	ErrOver = errors.New("claim: row is over")
	// ErrCancelled is matched by the *LostError that a handler finds as the cause of its context, or
	// when it ends its claim, after its row was cancelled.
	ErrCancelled = errors.New("claim: row was cancelled")
)

// Cancel makes a row dead that waits, with the error "cancelled"; id is the _id of its document.
// Any process of the queue may do so, whether it has claimed the row or not. A row that is worked
// on is marked: the context of its handler ends when its process tends its rows next, see
// [Config.Tend], and the row is dead when the handler has returned, whatever it returns. Until then
// it is claimed, so that nobody else works on it, nor on another row of its chain. One that is done
// before its process has looked is done. If the process dies the row is dead instead of being
// rescued. One command, two for a row that is worked on, and one more when it cannot be cancelled,
// or is dead and there is an OnDead.
//
// Errors: ErrOver, with what became of the row; *distlock.PrivilegeError; any other error when the
// outcome is in doubt: then it may be called again.
func (q *Queue[T]) Cancel(ctx context.Context, id any) error {
	if err := usable(ctx); err != nil {
		return err
	}
	raw, err := rawID(id)
	if err != nil {
		return err
	}
	return q.e.cancel(ctx, raw)
}

func (e *engine) cancel(ctx context.Context, id bson.RawValue) error {
	ctx, done := context.WithTimeout(ctx, 2*e.limit)
	defer done()
	left, err := e.store.Cancel(ctx, e.wall(), id)
	var found []rows.Row
	switch {
	case err != nil:
	case left == "":
		found, err = e.store.Current(ctx, []bson.RawValue{id})
	case left == rows.Dead && e.cfg.OnDead != nil:
		found, err = e.store.Documents(ctx, []bson.RawValue{id})
	}
	switch text := rows.Text(id); {
	case err != nil:
		return fmt.Errorf("claim: cancel row %s: %w", text, err)
	case left != "":
		e.log.Info().Str("row", text).Msg("row was cancelled")
		e.died(found...)
		return nil
	case len(found) == 0:
		return fmt.Errorf("%w: there is no row %s", ErrOver, text)
	default:
		return fmt.Errorf("%w: row %s is %s", ErrOver, text, found[0].Mark.State)
	}
}

// unlessCancelled is how a claim ends: a row that is known to be cancelled is dead.
func (c *claimed) unlessCancelled(end rows.Ending) rows.Ending {
	if !errors.Is(c.lostMark(), ErrCancelled) {
		return end
	}
	return rows.Ending{To: rows.Dead, Error: rows.Cancelled, Failures: c.row.Mark.Failures}
}
