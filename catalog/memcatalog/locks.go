package memcatalog

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Acquire is documented in [catalog.Locks].
func (c *Catalog) Acquire(ctx context.Context, g catalog.Grant) (catalog.Lock, error) {
	const verb = "acquire"
	if err := ctx.Err(); err != nil {
		return catalog.Lock{}, failed(verb, g.Name, err)
	}
	now := c.now()
	if err := c.forWrite(ctx, g.Name); err != nil {
		return catalog.Lock{}, failed(verb, g.Name, err)
	}
	defer c.mu.Unlock()
	doc := take(c.locks[stringKey(g.Name)])
	switch {
	case doc == nil:
		// As an upsert does: what the filter says equals comes first.
		doc = fields{{"_id", text(g.Name)}, {"state", int32Of(0)}}
	case !zero(doc.get("state")) || queued(doc):
		return catalog.Lock{}, failed(verb, g.Name, catalog.ErrNotFree)
	}
	return c.grant(verb, doc, g, now)
}

// Confirm is documented in [catalog.Locks].
func (c *Catalog) Confirm(ctx context.Context, g catalog.Grant) (catalog.Lock, error) {
	return c.writeHeld(ctx, "confirm", g.Session, func(fields) []edit {
		return []edit{inc("rev"), set("who", text(g.Who))}
	})
}

// SeedFence is documented in [catalog.Locks].
func (c *Catalog) SeedFence(ctx context.Context, s catalog.Session, atLeast int64) (
	catalog.Lock, error,
) {
	return c.writeHeld(ctx, "seed the fence of", s, func(doc fields) []edit {
		changes := []edit{inc("rev")}
		fence := doc.get("fence")
		n, ok := fence.AsInt64OK()
		if isNull(fence) || ok && n < atLeast {
			changes = append([]edit{set("fence", int64Of(atLeast))}, changes...)
		}
		return changes
	})
}

// Overtake is documented in [catalog.Locks].
func (c *Catalog) Overtake(ctx context.Context, g catalog.Grant, from catalog.Holder) (
	catalog.Lock, error,
) {
	const verb = "overtake"
	if err := ctx.Err(); err != nil {
		return catalog.Lock{}, failed(verb, g.Name, err)
	}
	now := c.now()
	if err := c.forWrite(ctx, g.Name); err != nil {
		return catalog.Lock{}, failed(verb, g.Name, err)
	}
	defer c.mu.Unlock()
	doc := take(c.locks[stringKey(g.Name)])
	if queued(doc) || sharedBy(doc, from.TS) || !heldBy(doc, from.Session) || !holds(doc.get("process"), isProcess(from.Process)) {
		return catalog.Lock{}, failed(verb, g.Name, catalog.ErrNoMatch)
	}
	return c.grant(verb, doc, g, now)
}

// Look is documented in [catalog.Locks]. Lock, ping and clock are of one instant.
func (c *Catalog) Look(ctx context.Context, name string) (catalog.Look, error) {
	if err := ctx.Err(); err != nil {
		return catalog.Look{}, failed("look at", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookAt(name), nil
}

// lookAt is Look. The caller holds mu.
func (c *Catalog) lookAt(name string) catalog.Look {
	look := catalog.Look{ServerTime: serverDate(c.now()), Primary: c.primary}
	raw := c.locks[stringKey(name)]
	if raw == nil {
		return look
	}
	l, bad := catalog.ParseLock(raw)
	if look.LockErr = bad; bad != nil {
		return look
	}
	look.Lock = &l
	look.Pulses = c.pulses(l)
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

// grant writes what an acquisition writes. The caller holds mu and has checked the document.
func (c *Catalog) grant(verb string, doc fields, g catalog.Grant, now time.Time) (
	catalog.Lock, error,
) {
	raw, bad := doc.apply(catalog.LocksCollection,
		inc("fence"),
		set("process", text(g.Process)),
		inc("rev"),
		set("state", int32Of(1)),
		set("takeoverMS", int64Of(g.Takeover.Milliseconds())),
		set("ts", objectIDOf(g.TS)),
		set("when", dateOf(now)),
		set("who", text(g.Who)),
		set("why", text(g.Why)),
	)
	if bad != nil {
		return catalog.Lock{}, failed(verb, g.Name, bad)
	}
	l, err := c.written(verb, g.Name, raw)
	if err == nil {
		return l, nil
	}
	// A fence that can be raised and still is no fence, such as 1.5: nobody gets the lock.
	raw, bad = take(raw).apply(catalog.LocksCollection, inc("rev"), set("state", int32Of(0)))
	if bad != nil {
		return catalog.Lock{}, failed(verb, g.Name, bad)
	}
	c.putLock(stringKey(g.Name), raw)
	return catalog.Lock{}, err
}

// written stores a lock document and returns what it says. The caller holds mu.
func (c *Catalog) written(verb, name string, raw bson.Raw) (catalog.Lock, error) {
	l, bad := c.putLock(stringKey(name), raw)
	if bad != nil {
		return catalog.Lock{}, failed(verb, name, bad)
	}
	return l, nil
}

// writeHeld changes the document of a lock that s holds.
func (c *Catalog) writeHeld(
	ctx context.Context, verb string, s catalog.Session, changes func(fields) []edit,
) (catalog.Lock, error) {
	if err := ctx.Err(); err != nil {
		return catalog.Lock{}, failed(verb, s.Name, err)
	}
	if err := c.forWrite(ctx, s.Name); err != nil {
		return catalog.Lock{}, failed(verb, s.Name, err)
	}
	defer c.mu.Unlock()
	doc := take(c.locks[stringKey(s.Name)])
	if !heldBy(doc, s) {
		return catalog.Lock{}, failed(verb, s.Name, catalog.ErrNoMatch)
	}
	raw, bad := doc.apply(catalog.LocksCollection, changes(doc)...)
	if bad != nil {
		return catalog.Lock{}, failed(verb, s.Name, bad)
	}
	return c.written(verb, s.Name, raw)
}

// heldBy is the filter {ts, state: {$gt: 0}}.
func heldBy(doc fields, s catalog.Session) bool {
	return holds(doc.get("ts"), equals(objectIDOf(s.TS))) && holds(doc.get("state"), positive)
}

// isProcess is the filter {process: id}; for the empty id it is missing, null or empty.
func isProcess(id string) func(bson.RawValue) bool {
	named := equals(text(id))
	return func(v bson.RawValue) bool { return named(v) || id == "" && isNull(v) }
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
