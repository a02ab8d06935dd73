package mongocatalog

import (
	"context"
	"iter"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// listBatch is the number of locks in one step of a listing on a server that cannot join
// collections.
const listBatch = 500

var byID = bson.D{{Key: "_id", Value: int32(1)}}

// List is documented in [catalog.Locks]. On a replica set or a standalone it sends one aggregate.
// On another server it sends one Hello and two finds per 500 locks.
func (c *Catalog) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	op, filter := catalog.OpList, bson.D{}
	if waited {
		op, filter = catalog.OpListWaited, queued()
	}
	return func(yield func(catalog.Snapshot, error) bool) {
		o := reading(string(op))
		row := func(_ bson.Raw, look catalog.Snapshot) bool {
			if look.LockErr != nil {
				return yield(catalog.Snapshot{}, o.wrap(look.LockErr))
			}
			return yield(look, nil)
		}
		s, err := c.known(ctx)
		switch {
		case err != nil:
			err = o.wrap(err)
		case joins(s):
			err = c.observe(ctx, o, filter, true, row)
		default:
			err = c.listInBatches(ctx, o, filter, row)
		}
		if err != nil {
			yield(catalog.Snapshot{}, err)
		}
	}
}

func (c *Catalog) listInBatches(
	ctx context.Context, o operation, filter bson.D,
	show func(lock bson.Raw, look catalog.Snapshot) bool,
) error {
	r := c.open(o, func(ctx context.Context) (*mongo.Cursor, error) {
		return c.locks.Find(ctx, filter, options.Find().SetSort(byID).SetBatchSize(listBatch))
	})
	defer r.close(ctx)
	for {
		var batch []bson.Raw
		for len(batch) < listBatch && r.next(ctx) {
			batch = append(batch, slices.Clone(r.row()))
		}
		if r.err != nil || len(batch) == 0 {
			return r.err
		}
		if _, err := c.Hello(ctx); err != nil {
			return o.wrap(err)
		}
		now := c.ListingTime() // just before the read of the pings
		pings, err := c.pingsOf(ctx, o, batch)
		if err != nil {
			return err
		}
		for _, lock := range batch {
			look := catalog.SnapshotOf(lock, pings.of)
			look.ServerTime = now
			if !show(lock, look) {
				return nil
			}
		}
	}
}

// pingsOf returns the ping documents of all holders and waiters in lock documents. It skips
// malformed lock documents.
func (c *Catalog) pingsOf(ctx context.Context, o operation, locks []bson.Raw) (pingDocs, error) {
	seen := map[string]bool{}
	for _, raw := range locks {
		catalog.SnapshotOf(raw, func(process string) catalog.PingState {
			seen[process] = true
			return catalog.PingState{}
		})
	}
	delete(seen, "")
	pings := pingDocs{}
	if len(seen) == 0 {
		return pings, nil
	}
	o.collection = catalog.PingsCollection
	filter := among("_id", slices.Sorted(maps.Keys(seen)))
	err := c.find(ctx, o, c.pings, filter, options.Find(), pings.add)
	return pings, err
}
