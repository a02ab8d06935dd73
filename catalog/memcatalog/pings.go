package memcatalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Ping is documented in [catalog.Pings].
func (c *Catalog) Ping(ctx context.Context, b catalog.Heartbeat) (catalog.Pinged, error) {
	const verb = "ping as"
	if err := ctx.Err(); err != nil {
		return catalog.Pinged{}, failed(verb, b.Process, err)
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
	case doc.at("condemned") >= 0 || !below(b.Seq)(doc.get("seq")) || !follows(b, doc.get("local")):
		p, err := b.Judge(raw)
		if err != nil {
			return catalog.Pinged{}, failed(verb, b.Process, err)
		}
		return catalog.Pinged{Ping: p}, nil
	}
	raw, bad := doc.apply(catalog.PingsCollection,
		set("local", dateOf(b.Local)),
		set("ping", dateOf(now)),
		set("pingMS", int64Of(b.Interval.Milliseconds())),
		set("seq", int64Of(b.Seq)),
		set("takeoverMS", int64Of(b.Takeover.Milliseconds())),
		unset("sight"),
	)
	if bad != nil {
		return catalog.Pinged{}, failed(verb, b.Process, bad)
	}
	c.pings[key] = raw
	p, bad := catalog.ParsePing(raw)
	if bad != nil {
		return catalog.Pinged{}, failed(verb, b.Process, bad)
	}
	return catalog.Pinged{Ping: p, Inserted: !there}, nil
}

// follows is the filter {local: {$in: b.Mine}} for a field that is no array.
func follows(b catalog.Heartbeat, local bson.RawValue) bool {
	ms, ok := local.DateTimeOK()
	return len(b.Mine) == 0 || ok && b.Follows(time.UnixMilli(ms))
}

// PutNote is documented in [catalog.Pings].
func (c *Catalog) PutNote(ctx context.Context, process string, n catalog.Note) error {
	const verb = "note who waits outside, in the ping of"
	if err := ctx.Err(); err != nil {
		return failed(verb, process, err)
	}
	update := catalog.NoteUpdate(n)[0]
	field := update.Value.(bson.D)[0]
	change := unset(field.Key)
	if update.Key == "$set" {
		t, value, err := bson.MarshalValue(field.Value)
		if err != nil {
			return failed(verb, process, err)
		}
		change = set(field.Key, bson.RawValue{Type: t, Value: value})
	}
	key := stringKey(process)
	c.mu.Lock()
	defer c.mu.Unlock()
	raw, there := c.pings[key]
	doc := take(raw)
	if !there || doc.at("condemned") >= 0 {
		return failed(verb, process, catalog.ErrNoMatch)
	}
	raw, bad := doc.apply(catalog.PingsCollection, change)
	if bad != nil {
		return failed(verb, process, bad)
	}
	c.pings[key] = raw
	return nil
}

// Condemn is documented in [catalog.Locks].
func (c *Catalog) Condemn(
	ctx context.Context, process string, watched *catalog.Ping, how catalog.Condemnation,
) error {
	const verb = "condemn"
	if err := ctx.Err(); err != nil {
		return failed(verb, process, err)
	}
	now := dateOf(c.now())
	mark := documentOf(fields{
		{"at", now}, {"by", text(how.By)}, {"evidence", text(how.Evidence)},
	})
	key := stringKey(process)
	c.mu.Lock()
	defer c.mu.Unlock()
	doc := take(c.pings[key])
	changes := []edit{set("condemned", mark)}
	if watched == nil {
		for _, taken := range []string{"seq", "ping", "condemned"} {
			if doc.at(taken) >= 0 {
				return failed(verb, process, catalog.ErrNoMatch)
			}
		}
		if doc == nil {
			doc = fields{{"_id", text(process)}}
		}
		changes = append(changes, set("ping", now))
	} else if !watched.HasSeq || !holds(doc.get("seq"), equalsNumber(watched.Seq)) ||
		doc.at("condemned") >= 0 {
		return failed(verb, process, catalog.ErrNoMatch)
	}
	raw, bad := doc.apply(catalog.PingsCollection, changes...)
	if bad != nil {
		return failed(verb, process, bad)
	}
	c.pings[key] = raw
	return nil
}

// Witness is documented in [catalog.Locks].
func (c *Catalog) Witness(ctx context.Context, watched catalog.Ping, s catalog.Sight) error {
	const verb = "leave a sight of"
	if err := ctx.Err(); err != nil {
		return failed(verb, watched.Process, err)
	}
	key := stringKey(watched.Process)
	c.mu.Lock()
	defer c.mu.Unlock()
	doc := take(c.pings[key])
	sight, _ := doc.get("sight").DocumentOK() // none is there in what is no document
	before := take(sight).get("at")
	asWatched := before.Type == 0
	if watched.Sight.By != "" {
		asWatched = holds(before, equals(dateOf(watched.Sight.At)))
	}
	if !watched.HasSeq || !holds(doc.get("seq"), equalsNumber(watched.Seq)) || doc.at("condemned") >= 0 || !asWatched {
		return failed(verb, watched.Process, catalog.ErrNoMatch)
	}
	raw, bad := doc.apply(catalog.PingsCollection, set("sight", documentOf(fields{
		{"seq", int64Of(s.Seq)}, {"at", dateOf(s.At)}, {"local", dateOf(s.Local)}, {"by", text(s.By)},
	})))
	if bad != nil {
		return failed(verb, watched.Process, bad)
	}
	c.pings[key] = raw
	return nil
}

// RemovePing is documented in [catalog.Pings].
func (c *Catalog) RemovePing(ctx context.Context, process string) error {
	if err := ctx.Err(); err != nil {
		return failed("remove the ping of", process, err)
	}
	key := stringKey(process)
	c.mu.Lock()
	defer c.mu.Unlock()
	if take(c.pings[key]).at("condemned") < 0 {
		delete(c.pings, key)
	}
	return nil
}

// Held is documented in [catalog.Pings]. The cost is that of the sessions which the process has.
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
	for s, fence := range of.holds {
		sessions = append(sessions, catalog.HeldSession{Session: s, Fence: fence})
	}
	for s := range of.waits {
		sessions = append(sessions, catalog.HeldSession{Session: s, Waits: true})
	}
	slices.SortFunc(sessions, catalog.HeldSession.Compare)
	return sessions, nil
}

// HeldSummary is documented in [catalog.Pings]. Its cost is that of the places, not of the locks.
func (c *Catalog) HeldSummary(ctx context.Context, process string) (catalog.HeldSummary, error) {
	if err := ctx.Err(); err != nil {
		return catalog.HeldSummary{}, failed("count the locks of", process, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.standing.of[process]
	if of == nil {
		return catalog.HeldSummary{}, nil
	}
	t := catalog.HeldSummary{Count: int64(len(of.holds)), FenceSum: of.fences}
	for s := range of.waits {
		t.Places = append(t.Places, s)
	}
	slices.SortFunc(t.Places, catalog.Session.Compare)
	return t, nil
}

// Prune is documented in [catalog.Pings].
func (c *Catalog) Prune(ctx context.Context, before time.Time) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("prune pings: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	named := map[string]bool{}
	for _, raw := range c.locks {
		for _, process := range processesIn(take(raw)) {
			named[process] = true
		}
	}
	pruned := 0
	for key, raw := range c.pings {
		doc := take(raw)
		id, ok := doc.get("_id").StringValueOK()
		if ok && !named[id] && holds(doc.get("ping"), olderThan(before)) {
			delete(c.pings, key)
			pruned++
		}
	}
	return pruned, nil
}

// processesIn returns the processes that hold or wait in a lock document, whether or not it is
// understood.
func processesIn(doc fields) []string {
	var values []bson.RawValue
	lines := []string{"waiters"}
	if holds(doc.get("state"), positive) {
		values, lines = append(values, doc.get("process")), append(lines, "sharers")
	}
	for _, line := range lines {
		list, ok := doc.get(line).ArrayOK()
		if !ok {
			continue
		}
		parties, err := list.Values()
		if err != nil {
			continue // damaged: it names nobody
		}
		for _, p := range parties {
			if party, ok := p.DocumentOK(); ok {
				values = append(values, take(party).get("process"))
			}
		}
	}
	var named []string
	for _, v := range values {
		if process, ok := v.StringValueOK(); ok {
			named = append(named, process)
		}
	}
	return named
}

// olderThan is the filter {field: {$lt: before}}, which only Dates match.
func olderThan(before time.Time) func(bson.RawValue) bool {
	return func(v bson.RawValue) bool {
		ms, ok := v.DateTimeOK()
		return ok && ms < before.UnixMilli()
	}
}

// Prepare is documented in [catalog.Pings]. There is nothing to prepare in memory.
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
			c.wrote(key)
			pruned++
		}
	}
	return pruned, "", nil
}
