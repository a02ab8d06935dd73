package memcatalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// PrepareHistory is documented in [catalog.History]. There is nothing to prepare in memory: what is
// too old goes by PruneHistory.
func (c *Catalog) PrepareHistory(ctx context.Context, _ time.Duration) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("prepare the history: %w", err)
	}
	return nil, nil
}

// AppendHistory is documented in [catalog.History].
func (c *Catalog) AppendHistory(ctx context.Context, entries []catalog.HistoryEntry) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	docs := map[string]bson.Raw{}
	for _, e := range entries {
		raw, err := bson.Marshal(e.Document())
		if err != nil {
			return fmt.Errorf("write history: %w", err)
		}
		key, _ := keyOf(raw) // it has an _id
		docs[key] = raw
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, raw := range docs {
		if _, there := c.history[key]; !there {
			c.history[key] = raw
		}
	}
	return nil
}

// PruneHistory is documented in [catalog.History].
func (c *Catalog) PruneHistory(ctx context.Context, before time.Time, most int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("prune the history: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	there := len(c.history)
	for key, raw := range c.history {
		if holds(raw.Lookup("at"), olderThan(before)) {
			delete(c.history, key)
		}
	}
	docs := c.history.latestFirst()
	for _, raw := range docs[min(most, len(docs)):] {
		key, _ := keyOf(raw) // it has an _id
		delete(c.history, key)
	}
	return there - len(c.history), nil
}

// ReadHistory is documented in [catalog.History]. The entries are of one instant.
func (c *Catalog) ReadHistory(ctx context.Context, q catalog.HistoryQuery) catalog.HistorySeq {
	return func(yield func(catalog.HistoryEntry, error) bool) {
		fail := func(err error) bool {
			return yield(catalog.HistoryEntry{}, fmt.Errorf("read the history: %w", err))
		}
		if err := ctx.Err(); err != nil {
			fail(err)
			return
		}
		for _, raw := range c.asked(q) {
			e, bad := catalog.ParseHistory(raw)
			if bad != nil && !fail(bad) || bad == nil && !yield(e, nil) {
				return
			}
		}
	}
}

// asked returns the history documents that a query matches, newest first. They are never changed in
// place.
func (c *Catalog) asked(q catalog.HistoryQuery) []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	docs := slices.DeleteFunc(c.history.latestFirst(), func(raw bson.Raw) bool {
		name, _ := raw.Lookup("name").StringValueOK()
		at := raw.Lookup("at")
		return q.Name != "" && name != q.Name ||
			!q.Since.IsZero() && (at.Type != bson.TypeDateTime || holds(at, olderThan(q.Since)))
	})
	if q.Limit > 0 {
		docs = docs[:min(q.Limit, len(docs))]
	}
	return docs
}

// latestFirst returns the documents by their Dates at, the latest first, and those of one instant
// by their _ids.
func (t table) latestFirst() []bson.Raw {
	docs := t.sorted()
	slices.Reverse(docs)
	slices.SortStableFunc(docs, func(a, b bson.Raw) int {
		x, _ := a.Lookup("at").DateTimeOK()
		y, _ := b.Lookup("at").DateTimeOK()
		return cmp.Compare(y, x)
	})
	return docs
}
