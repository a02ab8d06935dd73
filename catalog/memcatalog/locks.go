package memcatalog

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
	"mongodlm/catalog/queue"
)

// claim is Enter by [catalog.Claim].
func (c *Catalog) claim(ctx context.Context, g catalog.Request) (catalog.Lock, error) {
	const verb = "acquire"
	if err := ctx.Err(); err != nil {
		return catalog.Lock{}, failed(verb, g.Name, err)
	}
	now := c.now()
	if err := c.forWrite(ctx, g.Name); err != nil {
		return catalog.Lock{}, failed(verb, g.Name, err)
	}
	defer c.mu.Unlock()
	doc, l := take(c.locks[stringKey(g.Name)]), catalog.Lock{Name: g.Name}
	if doc == nil {
		// As an upsert does: what the filter says equals comes first.
		doc = fields{{"_id", text(g.Name)}, {"state", int32Of(0)}}
	} else {
		var bad *catalog.MalformedError
		if l, bad = catalog.ParseLock(doc.raw()); bad != nil {
			return catalog.Lock{}, failed(verb, g.Name, catalog.ErrNotFree)
		}
	}
	change, err := queue.Acquire(l, shared(doc), g, now)
	if err != nil {
		return catalog.Lock{}, failed(verb, g.Name, err)
	}
	return c.turn(verb, g.Name, doc, change)
}

// Confirm is documented in [catalog.Locks].
func (c *Catalog) Confirm(ctx context.Context, g catalog.Request) (catalog.Lock, error) {
	return c.revise(ctx, "confirm", g.Name, func(l catalog.Lock) (queue.Change, error) {
		return queue.Confirm(l, g)
	})
}

// SeedFence is documented in [catalog.Locks].
func (c *Catalog) SeedFence(ctx context.Context, s catalog.Session, atLeast int64) (
	catalog.Lock, error,
) {
	return c.revise(ctx, "seed the fence of", s.Name, func(l catalog.Lock) (queue.Change, error) {
		return queue.SeedFence(l, s, atLeast)
	})
}

// Renew is documented in [catalog.Locks].
func (c *Catalog) Renew(ctx context.Context, r catalog.Renewal) error {
	now := serverDate(c.now())
	return c.reviseHeld(ctx, "renew", r.Session, func(l catalog.Lock) (queue.Change, error) {
		return queue.Renew(l, r, now)
	})
}

// PutFirst is documented in [catalog.Locks].
func (c *Catalog) PutFirst(ctx context.Context, s catalog.Session, to bson.ObjectID) error {
	return c.reviseHeld(ctx, "put a waiter first of", s, func(l catalog.Lock) (queue.Change, error) {
		return queue.PutFirst(l, s, to)
	})
}

// RequestYield is documented in [catalog.Locks].
func (c *Catalog) RequestYield(ctx context.Context, name, by, why string) error {
	now := serverDate(c.now())
	_, err := c.revise(ctx, "request the yield of", name, func(l catalog.Lock) (queue.Change, error) {
		return queue.RequestYield(l, by, why, now)
	})
	return err
}

// Overtake is documented in [catalog.Locks].
func (c *Catalog) Overtake(ctx context.Context, g catalog.Request, from catalog.Holder) (
	catalog.Lock, error,
) {
	now := c.now()
	return c.revise(ctx, "overtake", g.Name, func(l catalog.Lock) (queue.Change, error) {
		return queue.Overtake(l, g, from, now)
	})
}

func (c *Catalog) lookAt(name string) catalog.Snapshot {
	look := catalog.Snapshot{ServerTime: serverDate(c.now()), Primary: c.primary}
	raw := c.locks[stringKey(name)]
	if raw == nil {
		return look
	}
	l, bad := catalog.ParseLock(raw)
	if look.LockErr = bad; bad != nil {
		return look
	}
	look.Lock = &l
	look.Pings = c.pulses(l)
	look.Ping, look.PingErr = parsePing(l.Process, c.pings[stringKey(l.Process)])
	return look
}

// Read is documented in [catalog.Locks].
func (c *Catalog) Read(ctx context.Context, name string) (catalog.Lock, error) {
	const verb = "read"
	if err := ctx.Err(); err != nil {
		return catalog.Lock{}, failed(verb, name, err)
	}
	c.mu.Lock()
	raw := c.locks[stringKey(name)]
	c.mu.Unlock()
	if raw == nil {
		return catalog.Lock{}, failed(verb, name, catalog.ErrNotFound)
	}
	l, bad := catalog.ParseLock(raw)
	if bad != nil {
		return catalog.Lock{}, failed(verb, name, bad)
	}
	return l, nil
}

// heldBy is the filter {ts, state: {$gt: 0}}.
func heldBy(doc fields, s catalog.Session) bool {
	return holds(doc.get("ts"), equals(objectIDOf(s.TS))) && holds(doc.get("state"), positive)
}

// parsePing understands the ping document of a process; nothing when the process has no name or
// the document is missing.
func parsePing(process string, raw bson.Raw) (*catalog.Ping, *catalog.MalformedError) {
	if process == "" || raw == nil {
		return nil, nil
	}
	p, bad := catalog.ParsePing(raw)
	if bad != nil {
		return nil, bad
	}
	return &p, nil
}

func failed(verb, name string, err error) error { return fmt.Errorf("%s %q: %w", verb, name, err) }
