package claim

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/internal/rows"
)

// An aside is a row that the server refuses to change. This process does not claim it for a while.
type aside struct {
	id    bson.RawValue
	until time.Duration // monotonic
	pause time.Duration
}

// A refused row is tried again after a pause, which doubles from refusedPause to refusedMost. A
// process leaves out at most mostAsides rows.
const (
	refusedPause = time.Minute
	refusedMost  = time.Hour
	mostAsides   = 1000
)

// findRefused finds the row that the server refused to let this process claim, and sets it aside.
// If the server accepts the claim now, findRefused returns the claimed row. It sends two commands.
func (e *engine) findRefused(s *session) (*claimed, error) {
	ask, err := e.ask()
	if err != nil {
		return nil, err
	}
	id, err := sent(e, func(ctx context.Context) (bson.RawValue, error) {
		return e.store.First(ctx, ask)
	})
	if err != nil || id.IsZero() {
		return nil, err
	}
	ask.Only = id
	c, err := e.claimRow(s, ask)
	if !isRefused(err) {
		return c, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.asides) >= mostAsides {
		return nil, fmt.Errorf("claim: more than %d rows are refused: %w", mostAsides, err)
	}
	key := rows.Key(id)
	pause := min(max(2*e.asides[key].pause, refusedPause), refusedMost)
	e.asides[key] = aside{id, e.clock.Now().Mono + pause, pause}
	if !e.logged["refused "+key] && len(e.logged) < mostLogged {
		e.logged["refused "+key] = true
		e.log.Error().Err(err).Str("row", rows.Text(id)).Msg("a row is set aside")
	}
	return nil, nil
}

// without returns the _ids of the rows that this process leaves out now.
func (e *engine) without() (ids []bson.RawValue) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now().Mono
	for key, one := range e.asides {
		switch {
		case one.until > now:
			ids = append(ids, one.id)
		case now-one.until > one.pause: // the row was claimed, or is gone
			delete(e.asides, key)
		}
	}
	return ids
}

// refused returns the number of rows that this process leaves out or cannot end.
func (e *engine) refused() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int64(len(e.asides) + e.owed)
}

// isCompany reports whether a handler of this process already works on the row. This happens if the
// row's field was removed, by a person or by a handler that replaced the document.
func (e *engine) isCompany(c *claimed) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for other := range e.flying {
		if other != c && rows.Key(other.row.ID) == rows.Key(c.row.ID) {
			return true
		}
	}
	return false
}

// setApart logs a claim for which isCompany is true, and returns the outcome that retries its row
// later.
func (e *engine) setApart(c *claimed) outcome {
	e.log.Warn().Str("row", rows.Text(c.row.ID)).Msg("the field of a row was removed while a handler " +
		"works on it: handlers must change documents by operators, not replace them")
	return outcome{c: c, end: c.row.Uncounted(rows.Retrying), pause: refusedPause}
}
