package mongocatalog

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

// listBatch is how many locks are listed in one step where the server cannot join.
const listBatch = 500

var byID = bson.D{{Key: "_id", Value: int32(1)}}

// breakLock is Break. It is a compare-and-set.
func (c *Catalog) breakLock(ctx context.Context, o operation, t transition.Break) (catalog.Lock, error) {
	s, ts := t.Session, bson.NewObjectID()
	for try := 1; ; try++ {
		raw, err := c.findOne(ctx, o, c.locks, s.Name)
		if err != nil {
			return catalog.Lock{}, err
		}
		l, err := o.breakable(raw, s, ts)
		if err != nil {
			return catalog.Lock{}, err
		}
		list, _ := raw.Lookup("sharers").ArrayOK()
		change, err := t.Free(l, len(list) > emptyArray, ts)
		if err != nil {
			return catalog.Lock{}, o.wrap(err)
		}
		doc, err := c.trySwap(ctx, o, swap(s.Name, raw, change))
		if err != nil {
			return catalog.Lock{}, err
		}
		if doc != nil {
			return o.understand(doc)
		}
		if err := swapAgain(ctx, try); err != nil {
			return catalog.Lock{}, o.wrap(err)
		}
	}
}

// emptyArray is the length of an array without elements.
const emptyArray = 5

// breakable reads a document that is to be broken. Where no session is named the one that stands
// there is not looked at.
func (o operation) breakable(raw bson.Raw, s catalog.Session, ts bson.ObjectID) (catalog.Lock, error) {
	if raw == nil {
		return catalog.Lock{}, o.wrap(catalog.ErrNoMatch)
	}
	if s.TS.IsZero() {
		var doc bson.D
		if err := bson.Unmarshal(raw, &doc); err != nil {
			return catalog.Lock{}, o.wrap(err)
		}
		doc = slices.DeleteFunc(doc, func(e bson.E) bool { return e.Key == "ts" })
		changed, err := bson.Marshal(append(doc, bson.E{Key: "ts", Value: ts}))
		if err != nil {
			return catalog.Lock{}, o.wrap(err)
		}
		raw = changed
	}
	return o.understand(raw)
}

// List is documented in [catalog.Operator]. One aggregate on a replica set or a standalone, else
// two finds for each 500 locks.
func (c *Catalog) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	verb, filter := "list", bson.D{}
	if waited {
		verb, filter = "list those who wait", queued()
	}
	return func(yield func(catalog.Snapshot, error) bool) {
		o := operation{
			verb: verb, database: c.database,
			collection: catalog.LocksCollection, actions: "find",
		}
		s, err := c.known(ctx)
		switch {
		case err != nil:
			yield(catalog.Snapshot{}, o.wrap(err))
		case joins(s):
			c.listAtOnce(ctx, o, filter, yield)
		default:
			c.listInBatches(ctx, o, filter, yield)
		}
	}
}

func (c *Catalog) listAtOnce(
	ctx context.Context, o operation, filter bson.D, yield func(catalog.Snapshot, error) bool,
) {
	r := c.open(o, func(ctx context.Context) (*mongo.Cursor, error) {
		return c.locks.Aggregate(ctx,
			observation(matching(filter), bson.D{{Key: "$sort", Value: byID}}),
			options.Aggregate().SetAllowDiskUse(true)) // 100 waiters each for thousands of locks
	})
	defer r.close(ctx)
	for r.next(ctx) {
		lock, pings, now := observed(r.row())
		if !yieldRow(o, lock, pings, now, yield) {
			return
		}
	}
	if r.err != nil {
		yield(catalog.Snapshot{}, r.err)
	}
}

func (c *Catalog) listInBatches(
	ctx context.Context, o operation, filter bson.D, yield func(catalog.Snapshot, error) bool,
) {
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
			break
		}
		now, pings, err := c.timedPingsOf(ctx, o, batch)
		if err != nil {
			yield(catalog.Snapshot{}, err)
			return
		}
		for _, lock := range batch {
			if !yieldRow(o, lock, pings, now, yield) {
				return
			}
		}
	}
	if r.err != nil {
		yield(catalog.Snapshot{}, r.err)
	}
}

// timedPingsOf is pingsOf with the clock of a moment before, see ListingTime.
func (c *Catalog) timedPingsOf(ctx context.Context, o operation, locks []bson.Raw) (
	time.Time, map[string]bson.Raw, error,
) {
	if _, err := c.Hello(ctx); err != nil {
		return time.Time{}, nil, o.wrap(err)
	}
	now := c.ListingTime()
	pings, err := c.pingsOf(ctx, o, locks)
	return now, pings, err
}

// pingsOf returns the ping documents of all processes that stand in lock documents. Documents that
// cannot be understood name none.
func (c *Catalog) pingsOf(ctx context.Context, o operation, locks []bson.Raw) (
	map[string]bson.Raw, error,
) {
	seen := map[string]bool{}
	for _, raw := range locks {
		l, bad := catalog.ParseLock(raw)
		if bad != nil {
			continue
		}
		seen[l.Process] = true
		for _, p := range slices.Concat(l.Sharers, l.Waiters) {
			seen[p.Process] = true
		}
	}
	delete(seen, "")
	pings := map[string]bson.Raw{}
	if len(seen) == 0 {
		return pings, nil
	}
	o.collection = catalog.PingsCollection
	filter := among("_id", slices.Sorted(maps.Keys(seen)))
	err := c.find(ctx, o, c.pings, filter, options.Find(), func(raw bson.Raw) {
		if id, ok := raw.Lookup("_id").StringValueOK(); ok {
			pings[id] = slices.Clone(raw)
		}
	})
	return pings, err
}

func yieldRow(
	o operation, lock bson.Raw, pings map[string]bson.Raw, now time.Time,
	yield func(catalog.Snapshot, error) bool,
) bool {
	l, bad := catalog.ParseLock(lock)
	if bad != nil {
		return yield(catalog.Snapshot{}, o.wrap(bad))
	}
	row := catalog.Snapshot{Lock: &l, ServerTime: now, Pings: pulses(l, pings)}
	row.Ping, row.PingErr = parsePing(l.Process, pings[l.Process])
	return yield(row, nil)
}
