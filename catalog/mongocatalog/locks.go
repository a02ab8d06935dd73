package mongocatalog

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"mongodlm/catalog"
	"mongodlm/catalog/queue"
)

func onLock(verb, name string) operation {
	return operation{
		verb: verb, name: name, quoted: true,
		collection: catalog.LocksCollection, actions: "find, insert, update",
	}
}

// under makes an operation of s a part of the transaction under the lock that s holds, if ctx carries that.
func (o operation) under(ctx context.Context, s catalog.Session) operation {
	o.session, _ = catalog.TransactionUnder(ctx, s).(*mongo.Session)
	return o
}

// claim is Enter by [catalog.Claim]. One command.
func (c *Catalog) claim(ctx context.Context, g catalog.Request) (catalog.Lock, error) {
	o := onLock("enter", g.Name)
	doc, err := c.modify(ctx, o, acquisition(g))
	// Where a foreign unique index refuses the document, waiting would not help; the server's
	// error names the index.
	if index, ok := duplicateKey(err); ok && index == idIndex {
		return catalog.Lock{}, o.wrap(catalog.ErrNotFree)
	}
	if err != nil {
		return catalog.Lock{}, err
	}
	return o.understand(doc)
}

// Overtake is documented in [catalog.Locks]. One command; where the document is not as we write it, or
// not as it was watched, a compare-and-set more.
func (c *Catalog) Overtake(ctx context.Context, g catalog.Request, from catalog.Holder) (
	catalog.Lock, error,
) {
	o := onLock("overtake", g.Name)
	if !from.TS.IsZero() {
		doc, err := c.modify(ctx, o, takeover(g, from))
		if err != nil {
			return catalog.Lock{}, err
		}
		if doc != nil {
			return o.understand(doc)
		}
	}
	l, _, err := c.changeBySwap(ctx, o, func(l catalog.Lock, now time.Time) (queue.Change, error) {
		return queue.Overtake(l, g, from, now)
	})
	return l, err
}

// Confirm is documented in [catalog.Locks]. It is a compare-and-set. What it asks about may not be committed yet,
// so it reads what the primary has: the write that follows waits for the majority.
func (c *Catalog) Confirm(ctx context.Context, g catalog.Request) (catalog.Lock, error) {
	o := onLock("confirm", g.Name)
	o.uncommitted = true
	l, _, err := c.changeBySwap(ctx, o,
		func(l catalog.Lock, _ time.Time) (queue.Change, error) { return queue.Confirm(l, g) })
	return l, err
}

// PutFirst is documented in [catalog.Locks]. It is a compare-and-set.
func (c *Catalog) PutFirst(ctx context.Context, s catalog.Session, to bson.ObjectID) error {
	l, _, err := c.changeBySwap(ctx, onLock("put a waiter first of", s.Name).under(ctx, s),
		func(l catalog.Lock, _ time.Time) (queue.Change, error) { return queue.PutFirst(l, s, to) })
	if err == nil {
		c.entered(l)
	}
	return err
}

// RequestYield is documented in [catalog.Locks]. It is a compare-and-set.
func (c *Catalog) RequestYield(ctx context.Context, name, by, why string) error {
	_, _, err := c.changeBySwap(ctx, onLock("request the yield of", name),
		func(l catalog.Lock, now time.Time) (queue.Change, error) {
			return queue.RequestYield(l, by, why, now)
		})
	return err
}

// SeedFence is documented in [catalog.Locks]. One command where the server has pipeline updates, and one
// more when the lock is not as it should be; else a compare-and-set.
func (c *Catalog) SeedFence(ctx context.Context, s catalog.Session, atLeast int64) (
	catalog.Lock, error,
) {
	o := onLock("seed the fence of", s.Name)
	server, err := c.known(ctx)
	if err != nil {
		return catalog.Lock{}, o.wrap(err)
	}
	if !server.PipelineUpdates {
		l, _, err := c.changeBySwap(ctx, o, func(l catalog.Lock, _ time.Time) (queue.Change, error) {
			return queue.SeedFence(l, s, atLeast)
		})
		return l, err
	}
	doc, err := c.modify(ctx, o, seeding(s, atLeast))
	if err != nil {
		return catalog.Lock{}, err
	}
	if doc == nil {
		return catalog.Lock{}, c.unmatched(ctx, o)
	}
	return o.understand(doc)
}

// Renew is documented in [catalog.Locks]. One command where the server has pipeline updates, and one more
// when the lock is not as it should be; else a compare-and-set.
func (c *Catalog) Renew(ctx context.Context, r catalog.Renewal) error {
	o := onLock("renew the lease of", r.Name).under(ctx, r.Session)
	server, err := c.known(ctx)
	if err != nil {
		return o.wrap(err)
	}
	if !server.PipelineUpdates {
		_, _, err := c.changeBySwap(ctx, o, func(l catalog.Lock, now time.Time) (queue.Change, error) {
			return queue.Renew(l, r, now)
		})
		return err
	}
	doc, err := c.modify(ctx, o, renewing(r))
	if err == nil && doc == nil {
		err = c.unmatched(ctx, o)
	}
	return err
}

// unmatched says why a condition did not hold: the document is malformed, or not as expected.
func (c *Catalog) unmatched(ctx context.Context, o operation) error {
	if _, err := c.readUnderstood(ctx, o, o.name); err != nil {
		return err
	}
	return o.wrap(catalog.ErrNoMatch)
}

// understand reads a document that came back.
func (o operation) understand(doc bson.Raw) (catalog.Lock, error) {
	l, bad := catalog.ParseLock(doc)
	if bad != nil {
		return catalog.Lock{}, o.wrap(bad)
	}
	return l, nil
}

// Condemn is documented in [catalog.Locks]. One command; a FerretDB is asked for its clock first. A
// foreign ping, without seq, cannot be condemned.
func (c *Catalog) Condemn(
	ctx context.Context, process string, watched *catalog.Ping, how catalog.Condemnation,
) error {
	o := onPing("condemn", process)
	if watched != nil && !watched.HasSeq {
		return o.wrap(catalog.ErrNoMatch)
	}
	now, err := c.dating(ctx)
	if err != nil {
		return o.wrap(err)
	}
	doc, err := c.modify(ctx, o, condemning(process, watched, how, now))
	if index, ok := duplicateKey(err); ok && index == idIndex {
		return o.wrap(catalog.ErrNoMatch)
	}
	if err != nil {
		return err
	}
	if doc == nil {
		return o.wrap(catalog.ErrNoMatch)
	}
	return nil
}

// Witness is documented in [catalog.Locks]. One command.
func (c *Catalog) Witness(ctx context.Context, watched catalog.Ping, s catalog.Sight) error {
	o := onPing("leave a sight of", watched.Process)
	if !watched.HasSeq {
		return o.wrap(catalog.ErrNoMatch)
	}
	filter, update := witnessing(watched, s)
	reply, err := c.write(ctx, o, updateOne(o.collection, filter, update))
	if err == nil && matched(reply) == 0 {
		err = o.wrap(catalog.ErrNoMatch)
	}
	return err
}

// dating returns the clock of a server that cannot write it below condemned by itself, zero for one
// that can.
func (c *Catalog) dating(ctx context.Context) (time.Time, error) {
	s, err := c.known(ctx)
	if err != nil || s.Kind != catalog.FerretDB {
		return time.Time{}, err
	}
	s, err = c.Hello(ctx)
	return s.Time, err
}

// Read is documented in [catalog.Locks]. One command; linearizable on a replica set, readConcern
// majority elsewhere. The first call may ask the server what it is.
func (c *Catalog) Read(ctx context.Context, name string) (catalog.Lock, error) {
	o := onLock("read", name)
	s, err := c.known(ctx)
	if err != nil {
		return catalog.Lock{}, o.wrap(err)
	}
	from := c.locks
	if s.Kind == catalog.ReplicaSet {
		from = from.Clone(options.Collection().SetReadConcern(readconcern.Linearizable()))
	}
	raw, err := c.findOne(ctx, o, from, name)
	if err != nil {
		return catalog.Lock{}, err
	}
	if raw == nil {
		return catalog.Lock{}, o.wrap(catalog.ErrNotFound)
	}
	return o.understand(raw)
}

// findOne returns the document with the string id, nil when there is none.
func (c *Catalog) findOne(
	ctx context.Context, o operation, from *mongo.Collection, id string,
) (bson.Raw, error) {
	o.database = c.database
	ctx, cancel, err := c.beginIn(ctx, o.session)
	if err != nil {
		return nil, o.wrap(err)
	}
	defer cancel()
	raw, err := from.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = nil
	}
	c.answered(err)
	if err != nil {
		return nil, o.failed(err)
	}
	return raw, nil
}

// matched returns how many documents an update matched or a delete removed.
func matched(reply bson.Raw) int {
	n, _ := reply.Lookup("n").AsInt64OK()
	return int(n)
}
