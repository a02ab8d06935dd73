package memcatalog

import (
	"context"
	"fmt"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// List is documented in [catalog.Operator]. The rows are of one instant.
func (c *Catalog) List(ctx context.Context) iter.Seq2[catalog.Holding, error] {
	return func(yield func(catalog.Holding, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(catalog.Holding{}, fmt.Errorf("list: %w", err))
			return
		}
		now := serverDate(c.now())
		locks, pings := c.snapshot()
		for i, raw := range locks {
			if err := ctx.Err(); err != nil {
				yield(catalog.Holding{}, fmt.Errorf("list: %w", err))
				return
			}
			l, bad := catalog.ParseLock(raw)
			if bad != nil {
				if !yield(catalog.Holding{}, fmt.Errorf("list: %w", bad)) {
					return
				}
				continue
			}
			row := catalog.Holding{Lock: l, ServerTime: now}
			row.Ping, row.PingErr = parsePing(l.Process, pings[i])
			if !yield(row, nil) {
				return
			}
		}
	}
}

// snapshot returns the lock documents in order, each with the ping document of its process.
func (c *Catalog) snapshot() (locks, pings []bson.Raw) {
	c.mu.Lock()
	defer c.mu.Unlock()
	locks = c.locks.sorted()
	pings = make([]bson.Raw, len(locks))
	for i, raw := range locks {
		if process, ok := take(raw).get("process").StringValueOK(); ok {
			pings[i] = c.pings[stringKey(process)]
		}
	}
	return locks, pings
}

// Break is documented in [catalog.Operator].
func (c *Catalog) Break(ctx context.Context, name string, fence int64, why string) (
	catalog.Lock, error,
) {
	const verb = "break"
	if err := ctx.Err(); err != nil {
		return catalog.Lock{}, failed(verb, name, err)
	}
	ts := c.newID()
	c.mu.Lock()
	defer c.mu.Unlock()
	doc := take(c.locks[stringKey(name)])
	seen := holds(doc.get("fence"), equalsNumber(fence)) || fence == 0 && isNull(doc.get("fence"))
	if !seen || !holds(doc.get("state"), positive) {
		return catalog.Lock{}, failed(verb, name, catalog.ErrNoMatch)
	}
	raw, bad := doc.apply(catalog.LocksCollection,
		inc("fence"),
		inc("rev"),
		set("state", int32Of(0)),
		set("ts", objectIDOf(ts)),
		set("why", text("broken: "+why)),
	)
	if bad != nil {
		return catalog.Lock{}, failed(verb, name, bad)
	}
	return c.written(verb, name, raw)
}
