package fault

import (
	"context"
	"iter"
	"time"

	"mongodlm/catalog"
)

func (c *Catalog) PrepareHistory(ctx context.Context, keep time.Duration) ([]string, error) {
	return through(ctx, c, PrepareHistory, "", func(ctx context.Context) ([]string, error) {
		return c.inner.PrepareHistory(ctx, keep)
	})
}

func (c *Catalog) AppendHistory(ctx context.Context, entries []catalog.HistoryEntry) error {
	return c.do(ctx, AppendHistory, "", func() error { return c.inner.AppendHistory(ctx, entries) })
}

func (c *Catalog) PruneHistory(ctx context.Context, before time.Time, most int) (int, error) {
	return through(ctx, c, PruneHistory, "", func(ctx context.Context) (int, error) {
		return c.inner.PruneHistory(ctx, before, most)
	})
}

// ReadHistory implements [catalog.History]. The hook runs once, before the first row.
func (c *Catalog) ReadHistory(ctx context.Context, q catalog.HistoryQuery) iter.Seq2[catalog.HistoryEntry, error] {
	if err := c.do(ctx, ReadHistory, q.Name, func() error { return nil }); err != nil {
		return func(yield func(catalog.HistoryEntry, error) bool) { yield(catalog.HistoryEntry{}, err) }
	}
	return c.inner.ReadHistory(ctx, q)
}
