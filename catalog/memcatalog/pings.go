package memcatalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Ping is documented in [catalog.Pings].
func (c *Catalog) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	const op = catalog.OpPing
	if err := ctx.Err(); err != nil {
		return catalog.Pinged{}, failed(op, b.Process, err)
	}
	now := c.now()
	key := stringKey(b.Process)
	c.mu.Lock()
	defer c.mu.Unlock()
	raw, there := c.pings[key]
	doc := take(raw)
	switch {
	case !there:
		doc = fields{{"_id", text(b.Process)}}
	case doc.at("condemned") >= 0 || !below(doc.get("seq"), b.Seq) || !follows(b, doc.get("local")):
		p, err := b.Judge(raw)
		if err != nil {
			return catalog.Pinged{}, failed(op, b.Process, err)
		}
		return catalog.Pinged{Ping: p}, nil
	}
	raw = doc.put("local", valueOf(b.Local)).
		put("ping", valueOf(now)).
		put("pingMS", valueOf(b.Interval.Milliseconds())).
		put("seq", valueOf(b.Seq)).
		put("takeoverMS", valueOf(b.Takeover.Milliseconds())).
		without("sight").raw()
	c.putPing(key, raw)
	p, bad := catalog.ParsePing(raw)
	if bad != nil {
		return catalog.Pinged{}, failed(op, b.Process, bad)
	}
	return catalog.Pinged{Ping: p, Inserted: !there}, nil
}

// follows applies the filter {local: {$in: b.Mine}} to a value that is not an array. Every value
// matches if b.Mine is empty.
func follows(b catalog.Heartbeat, local bson.RawValue) bool {
	ms, ok := local.DateTimeOK()
	return len(b.Mine) == 0 || ok && b.Follows(time.UnixMilli(ms))
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
	raw, there := c.pings[key]
	doc := take(raw)
	switch {
	case u.Removes:
		if doc.at("condemned") < 0 {
			c.putPing(key, nil)
		}
		return nil
	case !there && u.Makes:
		doc = fields{{"_id", text(process)}}
	case !there || !matches(doc, u):
		return failed(op, process, catalog.ErrNoMatch)
	}
	for _, e := range u.Set {
		if doc, err = doc.deep(e.Key, e.Value); err != nil {
			return failed(op, process, err)
		}
	}
	for _, key := range u.Unset {
		doc = doc.without(key)
	}
	c.putPing(key, doc.raw())
	return nil
}

// matches reports whether a ping document meets the conditions of a change.
func matches(doc fields, u catalog.PingUpdate) bool {
	for _, field := range append(u.Absent, "condemned") {
		if doc.lookup(field).Type != 0 {
			return false
		}
	}
	for _, e := range u.Equal {
		same := equals(valueOf(e.Value))
		if n, ok := e.Value.(int64); ok {
			same = equalsNumber(n)
		}
		if !holds(doc.lookup(e.Key), same) {
			return false
		}
	}
	return true
}

// Held is documented in [catalog.Pings]. Its cost depends only on the number of the process's
// sessions.
func (c *Catalog) Held(ctx context.Context, process string) ([]catalog.HeldSession, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("read the locks of", process, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.standing.of[process]
	if of == nil {
		return nil, nil
	}
	sessions := make([]catalog.HeldSession, 0, len(of.holds)+len(of.waits))
	for s := range of.holds {
		sessions = append(sessions, catalog.HeldSession{Session: s})
	}
	for s := range of.waits {
		sessions = append(sessions, catalog.HeldSession{Session: s, Waits: true})
	}
	slices.SortFunc(sessions, catalog.HeldSession.Compare)
	return sessions, nil
}

// OldPings is documented in [catalog.Pings].
func (c *Catalog) OldPings(ctx context.Context, before time.Time) ([]catalog.OldPing, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read old pings: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var old []catalog.OldPing
	for _, raw := range c.pings.sorted() {
		p, ok := catalog.OldPingOf(raw)
		if ok && p.At.Before(before) && len(old) < catalog.MaxOldPings {
			old = append(old, p)
		}
	}
	return old, nil
}

// Prune is documented in [catalog.Pings].
func (c *Catalog) Prune(ctx context.Context, old []catalog.OldPing) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("prune pings: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	named := map[string]bool{}
	for _, raw := range c.locks {
		for _, process := range catalog.ProcessesIn(raw, holds(take(raw).get("state"), positive)) {
			named[process] = true
		}
	}
	pruned := 0
	for _, seen := range old {
		key := stringKey(seen.Process)
		now, ok := catalog.OldPingOf(c.pings[key])
		if ok && !named[seen.Process] && now.At.Equal(seen.At) {
			c.putPing(key, nil)
			pruned++
		}
	}
	return pruned, nil
}

// Prepare is documented in [catalog.Pings]. The store in memory has no indexes to create.
func (c *Catalog) Prepare(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	return nil, nil
}

// PruneLocks is documented in [catalog.Pings].
func (c *Catalog) PruneLocks(ctx context.Context, before time.Time, after string, most int) (
	pruned int, next string, err error,
) {
	if err := ctx.Err(); err != nil {
		return 0, "", fmt.Errorf("prune locks: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	looked := 0
	for _, raw := range c.locks.sorted() {
		name, ok := take(raw).get("_id").StringValueOK()
		if !ok || name <= after {
			continue
		}
		if looked++; looked > most {
			return pruned, next, nil
		}
		next = name
		key := stringKey(name)
		if _, _, ok := catalog.Prunable(raw, before); ok && c.locked[key] == nil {
			c.standing.forget(key)
			delete(c.locks, key)
			pruned++
		}
	}
	return pruned, "", nil
}
