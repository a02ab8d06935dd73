package memcatalog

import (
	"context"

	"mongodlm/catalog"
)

// Transact is documented in [catalog.Transactions]. A store in memory has no documents of others,
// so what run does is not undone; only whether the lock is still held at the end is decided here,
// in one step with the raising of rev.
func (c *Catalog) Transact(ctx context.Context, s catalog.Session,
	run func(ctx context.Context) error) error {
	const verb = "transaction under"
	if err := run(ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return failed(verb, s.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	doc := take(c.locks[stringKey(s.Name)])
	l, _ := catalog.ParseLock(doc.raw())
	if _, holds := l.HeldBy(s.TS); !holds {
		return failed(verb, s.Name, catalog.ErrNoMatch)
	}
	raw, bad := doc.apply(catalog.LocksCollection, inc("rev"))
	if bad != nil {
		return failed(verb, s.Name, bad)
	}
	c.putLock(stringKey(s.Name), raw)
	return nil
}
