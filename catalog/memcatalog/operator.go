package memcatalog

import (
	"context"
	"fmt"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"

	"mongodlm/catalog"
)

// List is documented in [catalog.Locks]. The locks are of one instant.
func (c *Catalog) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	return func(yield func(catalog.Snapshot, error) bool) {
		docs := c.documents()
		for i := 0; i == 0 || i < len(docs); i++ {
			if err := ctx.Err(); err != nil {
				yield(catalog.Snapshot{}, fmt.Errorf("list: %w", err))
				return
			}
			if i == len(docs) || waited && !awaited(take(docs[i])) {
				continue
			}
			if row, err := c.row(docs[i]); !yield(row, err) {
				return
			}
		}
	}
}

// documents returns the lock documents in order. They are never changed in place.
func (c *Catalog) documents() []bson.Raw {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locks.sorted()
}

func (c *Catalog) row(raw bson.Raw) (catalog.Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	row := c.lookAt(raw)
	if row.LockErr != nil {
		return catalog.Snapshot{}, fmt.Errorf("list: %w", row.LockErr)
	}
	row.Primary = ""
	return row, nil
}
