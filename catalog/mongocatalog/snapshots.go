package mongocatalog

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"mongodlm/catalog"
)

// Snapshots is documented in [catalog.Queues]. On a replica set or a standalone it sends one
// aggregate for all names. The aggregate returns the locks, the pings of their holders and waiters,
// and the server's clock. FerretDB does not support the aggregate. There, Snapshots reads the
// clock, the locks and the pings, in that order.
//
// The clock of a mongos is not the clock of the shard that stores the locks. So behind a mongos,
// ServerTime is the clock of that shard at this process's latest ping. With [Options].Viewer, it is
// the clock of the mongos.
func (c *Catalog) Snapshots(ctx context.Context, names []string) (catalog.Looks, error) {
	if len(names) == 0 {
		return catalog.Looks{}, ctx.Err()
	}
	o, filter := reading("read "+fewOf(names)), among("_id", names)
	s, err := c.known(ctx)
	if err != nil {
		return nil, o.wrap(err)
	}
	snapshots := catalog.Looks{}
	note := func(raw bson.Raw, snapshot catalog.Snapshot) bool {
		if id, ok := raw.Lookup("_id").StringValueOK(); ok { // a requested name is a string
			snapshots[id] = snapshot
		}
		return true
	}
	if joins(s) {
		return snapshots, c.observe(ctx, o, filter, false, note)
	}
	now, primary := c.pingTime.load(), ""
	if s.Kind != catalog.Mongos || c.viewer {
		if s, err = c.Hello(ctx); err != nil {
			return nil, o.wrap(err)
		}
		now, primary = s.Time, s.Primary
		if c.viewer {
			now = c.ListingTime()
		}
	}
	var locks []bson.Raw
	err = c.find(ctx, o, c.locks, filter, options.Find(), func(raw bson.Raw) {
		locks = append(locks, slices.Clone(raw))
	})
	if err != nil {
		return nil, err
	}
	_, err = c.join(ctx, o, locks, catalog.Snapshot{ServerTime: now, Primary: primary}, note)
	return snapshots, err
}

// fewOf returns a text with the first three names and the number of the remaining names.
func fewOf(names []string) string {
	const few = 3
	var shown []string
	for _, name := range names[:min(few, len(names))] {
		shown = append(shown, `"`+catalog.Printable(name, 200)+`"`)
	}
	text := strings.Join(shown, ", ")
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// joins reports whether the server can return locks, pings and its clock in one command. A mongos
// cannot, because its $$NOW is the clock of the mongos, and because MongoDB 4.4 and 5.0 reject a
// join with a sharded collection.
func joins(s catalog.Server) bool {
	return s.Kind == catalog.ReplicaSet || s.Kind == catalog.Standalone
}

// A pingDocs contains ping documents by process id.
type pingDocs map[string]catalog.PingState

func (p pingDocs) of(process string) catalog.PingState { return p[process] }

func (p pingDocs) add(raw bson.Raw) {
	if id, ok := raw.Lookup("_id").StringValueOK(); ok {
		p[id] = catalog.PingStateOf(raw)
	}
}

// A rowFunc receives a lock document and its snapshot. It returns false to end the read.
type rowFunc func(lock bson.Raw, snapshot catalog.Snapshot) bool

// observe calls the given function for each lock that matches the filter, until the function
// returns false.
func (c *Catalog) observe(
	ctx context.Context, o operation, filter bson.D, sorted bool, show rowFunc,
) error {
	which, how := bson.A{matching(filter)}, options.Aggregate()
	if sorted {
		which = append(which, bson.D{{Key: "$sort", Value: byID}})
		how.SetAllowDiskUse(true) // thousands of locks may have 100 waiters each
	}
	open := func(ctx context.Context) (*mongo.Cursor, error) {
		return c.locks.Aggregate(ctx, observation(which...), how)
	}
	return c.each(ctx, o, open, func(row bson.Raw) bool {
		lock, _ := row.Lookup("lock").DocumentOK()
		list, _ := row.Lookup("pings").ArrayOK()
		values, _ := list.Values() // the server made the array
		pings := pingDocs{}
		for _, v := range values {
			ping, _ := v.DocumentOK()
			pings.add(ping)
		}
		snapshot := catalog.SnapshotOf(lock, pings.of)
		if ms, ok := row.Lookup("now").DateTimeOK(); ok {
			snapshot.ServerTime = time.UnixMilli(ms).UTC()
		}
		return show(lock, snapshot)
	})
}

// HeldOrFree is documented in [catalog.Queues]. It sends one command. The result omits who, why,
// since and takeoverMS of waiters, except on FerretDB.
func (c *Catalog) HeldOrFree(ctx context.Context, process string, names, always []string) (
	locks []catalog.Lock, err error,
) {
	if len(names) == 0 {
		return nil, ctx.Err()
	}
	o := reading("poll the grants of", process)
	s, err := c.known(ctx)
	if err != nil {
		return nil, o.wrap(err)
	}
	find := options.Find()
	if s.Kind != catalog.FerretDB {
		find = find.SetHint(byID).SetProjection(withoutTexts)
	}
	err = c.find(ctx, o, c.locks, heldOrFree(process, names, always), find, func(raw bson.Raw) {
		if l, bad := catalog.ParseLock(raw); bad == nil {
			locks = append(locks, l)
		}
	})
	return locks, err
}

// listBatch is the number of locks that List reads at a time if the server cannot join collections.
const listBatch = 500

var byID = bson.D{{Key: "_id", Value: int32(1)}}

// List is documented in [catalog.Locks]. On a replica set or a standalone it sends one aggregate.
// On any other server it sends, for each 500 locks, one Hello and two finds.
func (c *Catalog) List(ctx context.Context, waited bool) iter.Seq2[catalog.Snapshot, error] {
	op, filter := catalog.OpList, bson.D{}
	if waited {
		op, filter = catalog.OpListWaited, queued()
	}
	return func(yield func(catalog.Snapshot, error) bool) {
		o := reading(string(op))
		row := func(_ bson.Raw, snapshot catalog.Snapshot) bool {
			if snapshot.LockErr != nil {
				return yield(catalog.Snapshot{}, o.wrap(snapshot.LockErr))
			}
			return yield(snapshot, nil)
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
	ctx context.Context, o operation, filter bson.D, show rowFunc,
) error {
	var batch []bson.Raw
	var failed error
	showBatch := func() (more bool) {
		if _, err := c.Hello(ctx); err != nil {
			failed = o.wrap(err)
			return false
		}
		at := catalog.Snapshot{ServerTime: c.ListingTime()} // just before the read of the pings
		more, failed = c.join(ctx, o, batch, at, show)
		batch = nil
		return more
	}
	open := func(ctx context.Context) (*mongo.Cursor, error) {
		return c.locks.Find(ctx, filter, options.Find().SetSort(byID).SetBatchSize(listBatch))
	}
	err := c.each(ctx, o, open, func(raw bson.Raw) bool {
		batch = append(batch, slices.Clone(raw))
		return len(batch) < listBatch || showBatch()
	})
	if err == nil && failed == nil && len(batch) > 0 {
		showBatch()
	}
	return cmp.Or(err, failed)
}

// join reads the pings of the holders and waiters in the valid lock documents. It calls the given
// function with each lock document and its snapshot, until the function returns false. The
// ServerTime and the Primary of every snapshot are copies of those in the given snapshot.
func (c *Catalog) join(
	ctx context.Context, o operation, locks []bson.Raw, at catalog.Snapshot, show rowFunc,
) (more bool, err error) {
	seen := map[string]bool{}
	for _, raw := range locks {
		catalog.SnapshotOf(raw, func(process string) catalog.PingState {
			seen[process] = true
			return catalog.PingState{}
		})
	}
	delete(seen, "")
	pings := pingDocs{}
	if len(seen) > 0 {
		o.collection = catalog.PingsCollection
		filter := among("_id", slices.Sorted(maps.Keys(seen)))
		if err := c.find(ctx, o, c.pings, filter, options.Find(), pings.add); err != nil {
			return false, err
		}
	}
	for _, lock := range locks {
		snapshot := catalog.SnapshotOf(lock, pings.of)
		snapshot.ServerTime, snapshot.Primary = at.ServerTime, at.Primary
		if !show(lock, snapshot) {
			return false, nil
		}
	}
	return true, nil
}
