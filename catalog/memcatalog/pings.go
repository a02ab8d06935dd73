package memcatalog

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Ping is documented in [catalog.Pings].
func (c *Catalog) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	const op = catalog.OpPing
	now := c.now()
	if err := c.begin(ctx, op, b.Process); err != nil {
		return catalog.Pinged{}, err
	}
	defer c.mu.Unlock()
	key := stringKey(b.Process)
	before := c.pings[key]
	doc := before.fields()
	switch {
	case before == nil:
		doc = fields{{"_id", valueOf(b.Process)}}
	case !replaces(b, before.ping.Ping):
		p, err := b.Judge(before.raw)
		if err != nil {
			return catalog.Pinged{}, failed(op, b.Process, err)
		}
		return catalog.Pinged{Ping: p}, nil
	}
	after := storedPing(doc.put("local", valueOf(b.Local)).
		put("ping", valueOf(now)).
		put("pingMS", valueOf(b.Interval.Milliseconds())).
		put("seq", valueOf(b.Seq)).
		put("takeoverMS", valueOf(b.Takeover.Milliseconds())).
		without("sight").raw())
	c.pings[key] = after
	return catalog.Pinged{Ping: *after.ping.Ping, Inserted: before == nil}, nil
}

// replaces reports whether the ping b may replace the stored ping p. If the stored ping is
// malformed, p is nil.
func replaces(b catalog.Heartbeat, p *catalog.Ping) bool {
	return p != nil && p.Condemned == nil && p.HasSeq && p.Seq < b.Seq && b.Follows(p.Local)
}

// ApplyPing is documented in [catalog.Pings].
func (c *Catalog) ApplyPing(ctx context.Context, t catalog.PingChange) error {
	op, process := t.Op(), t.On()
	u, err := t.Update()
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return failed(op, process, err)
	}
	now := bson.NewDateTimeFromTime(c.now())
	for _, field := range u.Dates {
		u.Set = append(u.Set, bson.E{Key: field, Value: now})
	}
	slices.SortFunc(u.Set, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	key := stringKey(process)
	c.mu.Lock()
	defer c.mu.Unlock()
	stored := c.pings[key]
	doc := stored.fields()
	switch {
	case u.Removes:
		if doc.index("condemned") < 0 {
			delete(c.pings, key)
		}
		return nil
	case doc == nil && u.Makes:
		doc = fields{{"_id", valueOf(process)}}
	case doc == nil || !matches(stored.raw, u):
		return failed(op, process, catalog.ErrNoMatch)
	}
	for _, e := range u.Set {
		doc = doc.deep(e.Key, e.Value)
	}
	for _, key := range u.Unset {
		doc = doc.without(key)
	}
	c.pings[key] = storedPing(doc.raw())
	return nil
}

func matches(doc bson.Raw, u catalog.PingUpdate) bool {
	for _, field := range append(u.Absent, "condemned") {
		if lookup(doc, field).Type != 0 {
			return false
		}
	}
	for _, e := range u.Equal {
		v := lookup(doc, e.Key)
		same := v.Equal(valueOf(e.Value))
		if want, isNumber := e.Value.(int64); isNumber {
			n, ok := v.AsInt64OK()
			same = ok && n == want
		}
		if !same {
			return false
		}
	}
	return true
}

func lookup(doc bson.Raw, path string) bson.RawValue {
	return doc.Lookup(strings.Split(path, ".")...)
}

// Held is documented in [catalog.Pings].
func (c *Catalog) Held(ctx context.Context, process string) ([]catalog.HeldSession, error) {
	if err := c.begin(ctx, catalog.OpHeld, process); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	var sessions []catalog.HeldSession
	for _, doc := range c.locks {
		sessions = append(sessions, doc.lock.SessionsOf(process)...)
	}
	slices.SortFunc(sessions, catalog.HeldSession.Compare)
	return sessions, nil
}

// OldPings is documented in [catalog.Pings].
func (c *Catalog) OldPings(ctx context.Context, before time.Time) ([]catalog.OldPing, error) {
	if err := c.begin(ctx, catalog.OpOldPings, ""); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	var old []catalog.OldPing
	for _, doc := range c.pings.sorted() {
		p, ok := catalog.OldPingOf(doc.raw)
		if ok && p.At.Before(before) && len(old) < catalog.MaxOldPings {
			old = append(old, p)
		}
	}
	return old, nil
}

// Prune is documented in [catalog.Pings].
func (c *Catalog) Prune(ctx context.Context, old []catalog.OldPing) (int, error) {
	if err := c.begin(ctx, catalog.OpPrune, ""); err != nil {
		return 0, err
	}
	defer c.mu.Unlock()
	named := map[string]bool{}
	for _, doc := range c.locks {
		for _, process := range catalog.ProcessesIn(doc.raw, doc.bad != nil || doc.lock.Held) {
			named[process] = true
		}
	}
	pruned := 0
	for _, seen := range old {
		key := stringKey(seen.Process)
		now, ok := catalog.OldPingOf(c.pings[key].document())
		if ok && !named[seen.Process] && now.At.Equal(seen.At) {
			delete(c.pings, key)
			pruned++
		}
	}
	return pruned, nil
}

// Prepare is documented in [catalog.Pings]. It does nothing, because the store has no indexes.
func (c *Catalog) Prepare(ctx context.Context) ([]string, error) {
	return nil, ctx.Err()
}

// PruneLocks is documented in [catalog.Pings].
func (c *Catalog) PruneLocks(ctx context.Context, before time.Time, after string, limit int) (
	pruned int, next string, err error,
) {
	if err := c.begin(ctx, catalog.OpPruneLocks, after); err != nil {
		return 0, "", err
	}
	defer c.mu.Unlock()
	read := 0
	for _, doc := range c.locks.sorted() {
		name, ok := doc.raw.Lookup("_id").StringValueOK()
		if !ok || name <= after {
			continue
		}
		if read++; read > limit {
			return pruned, next, nil
		}
		next = name
		key := stringKey(name)
		if _, _, ok := catalog.Prunable(doc.raw, before); ok && c.locked[key] == nil {
			delete(c.locks, key)
			pruned++
		}
	}
	return pruned, "", nil
}
