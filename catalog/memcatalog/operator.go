package memcatalog

import (
	"context"
	"fmt"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// List is documented in [catalog.Operator]. The locks are of one instant.
func (c *Catalog) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	return c.list(ctx, func(raw bson.Raw) bool { return !waited || awaited(take(raw)) })
}

// list yields the lock documents that a filter lets through, whether or not they are understood.
func (c *Catalog) list(ctx context.Context, filter func(bson.Raw) bool) iter.Seq2[
	catalog.Snapshot, error] {
	return func(yield func(catalog.Snapshot, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(catalog.Snapshot{}, fmt.Errorf("list: %w", err))
			return
		}
		for _, raw := range c.documents() {
			if err := ctx.Err(); err != nil {
				yield(catalog.Snapshot{}, fmt.Errorf("list: %w", err))
				return
			}
			if !filter(raw) {
				continue
			}
			row, err := c.row(raw)
			if !yield(row, err) {
				return
			}
		}
	}
}

// documents returns the lock documents in order. They are never changed in place.
func (c *Catalog) documents() []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locks.sorted()
}

func (c *Catalog) row(raw bson.Raw) (catalog.Snapshot, error) {
	l, bad := catalog.ParseLock(raw)
	if bad != nil {
		return catalog.Snapshot{}, fmt.Errorf("list: %w", bad)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	row := catalog.Snapshot{Lock: &l, ServerTime: serverDate(c.now()), Pings: c.pulses(l)}
	row.Ping, row.PingErr = parsePing(l.Process, c.pings[stringKey(l.Process)])
	return row, nil
}
