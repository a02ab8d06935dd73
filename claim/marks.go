package claim

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// errUnmarked is why a row is set aside whose field was removed while it was worked on.
var errUnmarked = errors.New("its field was removed while it was worked on: " +
	"a handler must change its document, and not replace it")

// begun notes how the handler of a row is ended.
func (c *claimed) begun(cancel context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel = cancel
	if c.lost != nil {
		cancel(c.lost)
	}
}

// lose says that a row's mark is another one, which ends the context of its handler.
func (c *claimed) lose(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost = why; c.cancel != nil {
		c.cancel(why)
	}
}

func (c *claimed) lostMark() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// checkMarks ends the handlers whose rows are marked by them no more. One command, or none.
func (e *engine) checkMarks(ctx context.Context) error {
	var list []*claimed
	var ids []bson.RawValue
	e.mu.Lock()
	for c := range e.flying {
		if c.stage.Load() == open && c.s.err() == nil {
			list, ids = append(list, c), append(ids, c.row.ID)
		}
	}
	e.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	ctx, done := e.command(ctx)
	defer done()
	found, err := e.store.Current(ctx, ids)
	if err != nil {
		return err
	}
	there := byKey(found)
	for _, c := range list {
		row := there[rows.Key(c.row.ID)]
		if c.stage.Load() != open || c.lostMark() != nil ||
			isClaim(row, c.row.Mark.Batch) && !row.Mark.Cancelled {
			continue
		}
		why := lost(c, row)
		e.log.Warn().Err(why).Msg("a row was lost while it was worked on")
		c.lose(why)
		if row != nil && row.Mark.Batch.IsZero() {
			e.setAside([]rows.Refused{{ID: row.ID, Err: errUnmarked}})
		}
	}
	return nil
}

// withoutFlying leaves out the rows that are worked on here still: their field was removed
// meanwhile, since their fences began anew.
func (e *engine) withoutFlying(found []rows.Row) (left, out []rows.Row) {
	fences := map[string]int64{}
	e.mu.Lock()
	for c := range e.flying {
		fences[rows.Key(c.row.ID)] = max(fences[rows.Key(c.row.ID)], c.row.Mark.Fence)
	}
	e.mu.Unlock()
	for _, row := range found {
		if row.Mark.Fence <= fences[rows.Key(row.ID)] {
			e.setAside([]rows.Refused{{ID: row.ID, Err: errUnmarked}})
		}
		if e.isAside(row.ID) { // by us, or since the question was sent
			out = append(out, row)
		} else {
			left = append(left, row)
		}
	}
	return left, out
}

// putAside ends the claims of rows that are left out, for all processes to leave them alone as
// long: a Tend gives them back only when the others of their batch are over. At most one command.
func (e *engine) putAside(ctx context.Context, out []rows.Row) {
	if len(out) == 0 {
		return
	}
	ends := make([]rows.Ending, len(out))
	for i, row := range out {
		ends[i] = rows.Ending{ID: row.ID, Session: row.Mark.Session, Batch: row.Mark.Batch,
			To: rows.Retrying, Uncounted: true, Pause: refusedPause}
	}
	err := e.putOff(ctx, ends)
	if err == nil {
		ctx, done := e.command(ctx)
		defer done()
		_, err = e.store.Finish(ctx, ends)
	}
	if err != nil {
		e.log.Warn().Err(err).Int("rows", len(out)).
			Msg("rows that are set aside stay claimed for a while")
	}
}

// unmarked sets the rows aside whose claims could not be ended because their field was removed:
// else they would be handled again at once, for ever.
func (e *engine) unmarked(ends []outcome, left []rows.Row, errs []error) {
	for i, o := range ends {
		for _, row := range left {
			mark, mine := row.Mark, o.c.row.Mark
			anew := mark.Batch.IsZero() || mark.Batch != mine.Batch && mark.Fence <= mine.Fence
			if errs[i] != nil && rows.Key(row.ID) == rows.Key(o.c.row.ID) && anew {
				e.setAside([]rows.Refused{{ID: row.ID, Err: errUnmarked}})
			}
		}
	}
}

// still returns a row that is claimed as before, nil if it is not.
func still(left []rows.Row, end rows.Ending) *rows.Row {
	row := byKey(left)[rows.Key(end.ID)]
	if !isClaim(row, end.Batch) {
		return nil
	}
	return row
}

func isClaim(row *rows.Row, batch bson.ObjectID) bool {
	return row != nil && row.Mark.State == rows.Claimed && row.Mark.Batch == batch
}

func byKey(these []rows.Row) map[string]*rows.Row {
	found := map[string]*rows.Row{}
	for i := range these {
		found[rows.Key(these[i].ID)] = &these[i]
	}
	return found
}

// cancelledNow returns a row that was to be tried again and is not, since it was cancelled.
func cancelledNow(left []rows.Row, end rows.Ending) *rows.Row {
	if row := still(left, end); row != nil && row.Mark.Cancelled && isRetry(end) {
		return row
	}
	return nil
}

// judge says of each row whether its claim was ended by us. A document that is gone was removed by
// us if as many are gone as the server counts.
func judge(endings []rows.Ending, ends []outcome, left []rows.Row, matched int, errs []error) {
	there := byKey(left)
	gone, ours := 0, 0
	for _, end := range endings {
		row := there[rows.Key(end.ID)]
		switch {
		case row == nil:
			gone++
		case row.Mark.State == end.To && row.Mark.Batch == end.Batch:
			ours++
		}
	}
	for i, end := range endings {
		row := there[rows.Key(end.ID)]
		switch {
		case row != nil && row.Mark.State == end.To && row.Mark.Batch == end.Batch:
		case row == nil && end.Delete && (ends[i].c.tries > 0 || matched-ours >= gone):
		default:
			errs[i] = lost(ends[i].c, row)
		}
	}
}
