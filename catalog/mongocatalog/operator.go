package mongocatalog

import (
	"context"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// listBatch is how many locks are listed in one step where the server cannot join.
const listBatch = 500

var byID = bson.D{{Key: "_id", Value: int32(1)}}

// Break is documented in [catalog.Operator]. One command.
func (c *Catalog) Break(ctx context.Context, name string, fence int64, why string) (
	catalog.Lock, error,
) {
	o := onLock("break", name)
	l, err := c.modifyLock(ctx, o, breaking(name, fence, bson.NewObjectID(), why))
	if bad := notRaised(err, o.collection, name, "fence"); bad != nil {
		return catalog.Lock{}, o.wrap(bad)
	}
	return l, err
}

// List is documented in [catalog.Operator]. One aggregate on a replica set or a standalone, else
// two finds for each 500 locks.
func (c *Catalog) List(ctx context.Context) iter.Seq2[catalog.Holding, error] {
	return func(yield func(catalog.Holding, error) bool) {
		o := operation{
			verb: "list", database: c.database,
			collection: catalog.LocksCollection, actions: "find",
		}
		s, err := c.known(ctx)
		switch {
		case err != nil:
			yield(catalog.Holding{}, o.wrap(err))
		case joins(s):
			c.listAtOnce(ctx, o, yield)
		default:
			c.listInBatches(ctx, o, yield)
		}
	}
}

func (c *Catalog) listAtOnce(
	ctx context.Context, o operation, yield func(catalog.Holding, error) bool,
) {
	r := c.open(o, func(ctx context.Context) (*mongo.Cursor, error) {
		return c.locks.Aggregate(ctx, observation(bson.D{{Key: "$sort", Value: byID}}))
	})
	defer r.close(ctx)
	for r.next(ctx) {
		lock, ping, now := observed(r.row())
		row := catalog.Holding{ServerTime: now}
		if !yieldRow(o, row, lock, ping, yield) {
			return
		}
	}
	if r.err != nil {
		yield(catalog.Holding{}, r.err)
	}
}

func (c *Catalog) listInBatches(
	ctx context.Context, o operation, yield func(catalog.Holding, error) bool,
) {
	r := c.open(o, func(ctx context.Context) (*mongo.Cursor, error) {
		return c.locks.Find(ctx, bson.D{}, options.Find().SetSort(byID).SetBatchSize(listBatch))
	})
	defer r.close(ctx)
	for {
		var batch []bson.Raw
		for len(batch) < listBatch && r.next(ctx) {
			batch = append(batch, append(bson.Raw(nil), r.row()...))
		}
		if r.err != nil || len(batch) == 0 {
			break
		}
		row, pings, err := c.pingsOf(ctx, o, batch)
		if err != nil {
			yield(catalog.Holding{}, err)
			return
		}
		for _, lock := range batch {
			if !yieldRow(o, row, lock, pings[processOf(lock)], yield) {
				return
			}
		}
	}
	if r.err != nil {
		yield(catalog.Holding{}, r.err)
	}
}

// pingsOf returns the ping documents of the processes that lock documents name, and a row with the
// server's clock of that moment.
func (c *Catalog) pingsOf(ctx context.Context, o operation, locks []bson.Raw) (
	catalog.Holding, map[string]bson.Raw, error,
) {
	row := catalog.Holding{ServerTime: c.pingTime.at()}
	s, err := c.Hello(ctx)
	if err != nil {
		return row, nil, o.wrap(err)
	}
	if s.Kind != catalog.Mongos {
		row.ServerTime = s.Time
	}
	processes := bson.A{}
	seen := map[string]bool{"": true}
	for _, raw := range locks {
		if process := processOf(raw); !seen[process] {
			seen[process] = true
			processes = append(processes, process)
		}
	}
	pings := map[string]bson.Raw{}
	if len(processes) == 0 {
		return row, pings, nil
	}
	o.collection = catalog.PingsCollection
	filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: processes}}}}
	err = c.find(ctx, o, c.pings, filter, options.Find(), func(raw bson.Raw) {
		if id, ok := raw.Lookup("_id").StringValueOK(); ok {
			pings[id] = append(bson.Raw(nil), raw...)
		}
	})
	return row, pings, err
}

// processOf returns the process that a lock document names; empty when it cannot be understood.
func processOf(raw bson.Raw) string {
	l, bad := catalog.ParseLock(raw)
	if bad != nil {
		return ""
	}
	return l.Process
}

func yieldRow(
	o operation, row catalog.Holding, lock, ping bson.Raw,
	yield func(catalog.Holding, error) bool,
) bool {
	l, bad := catalog.ParseLock(lock)
	if bad != nil {
		return yield(catalog.Holding{}, o.wrap(bad))
	}
	row.Lock = l
	row.Ping, row.PingErr = parsePing(l.Process, ping)
	return yield(row, nil)
}
