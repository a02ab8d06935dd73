package fault

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// Enter implements [catalog.Queues].
func (c *Catalog) Enter(ctx context.Context, g catalog.Request, how catalog.EnterMode) (
	catalog.Lock, error,
) {
	op := Enter
	if how == catalog.Claim {
		op = Acquire
	}
	return through(ctx, c, op, g.Name, func(ctx context.Context) (catalog.Lock, error) {
		return c.inner.Enter(ctx, g, how)
	})
}

// Leave implements [catalog.Queues]. It is counted and hooked as a release.
func (c *Catalog) Leave(ctx context.Context, s catalog.Session) ([]catalog.Grant, error) {
	return through(ctx, c, Release, s.Name, func(ctx context.Context) ([]catalog.Grant, error) {
		return c.inner.Leave(ctx, s)
	})
}

// Evict implements [catalog.Queues].
func (c *Catalog) Evict(ctx context.Context, dead catalog.Holder, evidence string) (
	[]catalog.Grant, error,
) {
	return through(ctx, c, Evict, dead.Name, func(ctx context.Context) ([]catalog.Grant, error) {
		return c.inner.Evict(ctx, dead, evidence)
	})
}

// GrantNext implements [catalog.Queues].
func (c *Catalog) GrantNext(ctx context.Context, name string) ([]catalog.Grant, error) {
	return through(ctx, c, GrantNext, name, func(ctx context.Context) ([]catalog.Grant, error) {
		return c.inner.GrantNext(ctx, name)
	})
}

// Snapshots implements [catalog.Queues].
func (c *Catalog) Snapshots(ctx context.Context, names []string) (map[string]catalog.Snapshot, error) {
	return through(ctx, c, Look, strings.Join(names, " "), func(ctx context.Context) (map[string]catalog.Snapshot, error) {
		return c.inner.Snapshots(ctx, names)
	})
}

// WaitedUnder implements [catalog.Queues].
func (c *Catalog) WaitedUnder(ctx context.Context, processes []string, held []bson.ObjectID) (
	map[string]catalog.Snapshot, error,
) {
	return through(ctx, c, WaitedUnder, "", func(ctx context.Context) (map[string]catalog.Snapshot, error) {
		return c.inner.WaitedUnder(ctx, processes, held)
	})
}

type awarded struct {
	grants []catalog.Grant
	free   []string
}

// HeldOrFree implements [catalog.Queues].
func (c *Catalog) HeldOrFree(ctx context.Context, process string, names []string) (
	[]catalog.Grant, []string, error,
) {
	got, err := through(ctx, c, HeldOrFree, process, func(ctx context.Context) (awarded, error) {
		grants, free, err := c.inner.HeldOrFree(ctx, process, names)
		return awarded{grants, free}, err
	})
	return got.grants, got.free, err
}

// GrantStream implements [catalog.Queues]. A hook sees the opening, and every Next.
func (c *Catalog) GrantStream(ctx context.Context, process string) (catalog.GrantStream, error) {
	inner, err := through(ctx, c, GrantStream, process, func(ctx context.Context) (catalog.GrantStream, error) {
		return c.inner.GrantStream(ctx, process)
	})
	if err != nil {
		return nil, err
	}
	return &notices{c: c, process: process, inner: inner}, nil
}

type notices struct {
	c       *Catalog
	process string
	inner   catalog.GrantStream
}

// Next sends nothing that a server would carry out after its caller has gone: it ends with ctx.
func (n *notices) Next(ctx context.Context) ([]catalog.Grant, error) {
	return through(ctx, n.c, Notice, n.process, func(context.Context) ([]catalog.Grant, error) {
		return n.inner.Next(ctx)
	})
}

func (n *notices) Close(ctx context.Context) { n.inner.Close(ctx) }

// EnterTransaction implements [catalog.Queues].
func (c *Catalog) EnterTransaction(ctx context.Context, g catalog.Request) (catalog.Lock, error) {
	return through(ctx, c, EnterTransaction, g.Name, func(ctx context.Context) (catalog.Lock, error) {
		return c.inner.EnterTransaction(ctx, g)
	})
}
