package fault

import (
	"context"
	"iter"

	"mongodlm/catalog"
)

// Enter implements [catalog.Queues].
func (c *Catalog) Enter(ctx context.Context, g catalog.Grant, how catalog.Line) (
	catalog.Lock, error,
) {
	return through(ctx, c, Enter, g.Name, func(ctx context.Context) (catalog.Lock, error) {
		return c.inner.Enter(ctx, g, how)
	})
}

// Leave implements [catalog.Queues]. It is counted and hooked as a release.
func (c *Catalog) Leave(ctx context.Context, s catalog.Session) ([]catalog.Award, error) {
	return through(ctx, c, Release, s.Name, func(ctx context.Context) ([]catalog.Award, error) {
		return c.inner.Leave(ctx, s)
	})
}

// Bury implements [catalog.Queues].
func (c *Catalog) Bury(ctx context.Context, dead catalog.Holder, evidence string) (
	[]catalog.Award, error,
) {
	return through(ctx, c, Bury, dead.Name, func(ctx context.Context) ([]catalog.Award, error) {
		return c.inner.Bury(ctx, dead, evidence)
	})
}

// Settle implements [catalog.Queues].
func (c *Catalog) Settle(ctx context.Context, name string) ([]catalog.Award, error) {
	return through(ctx, c, Settle, name, func(ctx context.Context) ([]catalog.Award, error) {
		return c.inner.Settle(ctx, name)
	})
}

// Attend implements [catalog.Queues].
func (c *Catalog) Attend(ctx context.Context, names []string) (map[string]catalog.Look, error) {
	return through(ctx, c, Attend, "", func(ctx context.Context) (map[string]catalog.Look, error) {
		return c.inner.Attend(ctx, names)
	})
}

type awarded struct {
	awards []catalog.Award
	free   []string
}

// Awarded implements [catalog.Queues].
func (c *Catalog) Awarded(ctx context.Context, process string, names []string) (
	[]catalog.Award, []string, error,
) {
	got, err := through(ctx, c, Awarded, process, func(ctx context.Context) (awarded, error) {
		awards, free, err := c.inner.Awarded(ctx, process, names)
		return awarded{awards, free}, err
	})
	return got.awards, got.free, err
}

// Waiting implements [catalog.Queues]. The hook runs once, before the first row.
func (c *Catalog) Waiting(ctx context.Context) iter.Seq2[catalog.Holding, error] {
	if err := c.do(ctx, Waiting, "", func() error { return nil }); err != nil {
		return func(yield func(catalog.Holding, error) bool) { yield(catalog.Holding{}, err) }
	}
	return c.inner.Waiting(ctx)
}

// Notices implements [catalog.Queues]. A hook sees the opening, and every Next.
func (c *Catalog) Notices(ctx context.Context, process string) (catalog.Notices, error) {
	inner, err := through(ctx, c, Notices, process, func(ctx context.Context) (catalog.Notices, error) {
		return c.inner.Notices(ctx, process)
	})
	if err != nil {
		return nil, err
	}
	return &notices{c: c, process: process, inner: inner}, nil
}

type notices struct {
	c       *Catalog
	process string
	inner   catalog.Notices
}

func (n *notices) Next(ctx context.Context) ([]catalog.Award, error) {
	return through(ctx, n.c, Notice, n.process, n.inner.Next)
}

func (n *notices) Close(ctx context.Context) { n.inner.Close(ctx) }

// EnterTransaction implements [catalog.Queues].
func (c *Catalog) EnterTransaction(ctx context.Context, g catalog.Grant) (catalog.Lock, error) {
	return through(ctx, c, EnterTransaction, g.Name, func(ctx context.Context) (catalog.Lock, error) {
		return c.inner.EnterTransaction(ctx, g)
	})
}
