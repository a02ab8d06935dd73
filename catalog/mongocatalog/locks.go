package mongocatalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"mongodlm/catalog"
)

func onLock(verb, name string) operation {
	return operation{
		verb: verb, name: name, quoted: true,
		collection: catalog.LocksCollection, actions: "find, insert, update",
	}
}

// Acquire is documented in [catalog.Locks]. One command.
func (c *Catalog) Acquire(ctx context.Context, g catalog.Grant) (catalog.Lock, error) {
	o := onLock("acquire", g.Name)
	doc, err := c.modify(ctx, o, acquisition(g))
	// F22: where a foreign unique index refuses the document, waiting would not help; the server's
	// error names the index.
	if index, ok := duplicateKey(err); ok && index == idIndex {
		return catalog.Lock{}, o.wrap(catalog.ErrNotFree)
	}
	return c.granted(ctx, o, g, doc, err)
}

// Overtake is documented in [catalog.Locks]. One command.
func (c *Catalog) Overtake(ctx context.Context, g catalog.Grant, from catalog.Holder) (
	catalog.Lock, error,
) {
	o := onLock("overtake", g.Name)
	doc, err := c.modify(ctx, o, takeover(g, from))
	return c.granted(ctx, o, g, doc, err)
}

// granted understands the reply of an acquisition.
func (c *Catalog) granted(
	ctx context.Context, o operation, g catalog.Grant, doc bson.Raw, err error,
) (catalog.Lock, error) {
	if bad := notRaised(err, o.collection, g.Name, "fence"); bad != nil {
		return catalog.Lock{}, o.wrap(bad)
	}
	if err != nil {
		return catalog.Lock{}, err
	}
	if doc == nil {
		return catalog.Lock{}, o.wrap(catalog.ErrNoMatch)
	}
	l, bad := catalog.ParseLock(doc)
	if bad == nil {
		return l, nil
	}
	// A fence that the server could raise and that still is no fence, such as 1.5. Nobody may
	// hold such a lock: we give it back at once.
	if err := c.Release(ctx, g.Session); err != nil && !errors.Is(err, catalog.ErrNoMatch) {
		return catalog.Lock{}, o.wrap(fmt.Errorf("%w: %w", catalog.ErrUnknownOutcome, bad))
	}
	return catalog.Lock{}, o.wrap(bad)
}

// Confirm is documented in [catalog.Locks]. One command.
func (c *Catalog) Confirm(ctx context.Context, g catalog.Grant) (catalog.Lock, error) {
	return c.revise(ctx, onLock("confirm", g.Name), confirmation(g))
}

// SeedFence is documented in [catalog.Locks]. One command.
func (c *Catalog) SeedFence(ctx context.Context, s catalog.Session, atLeast int64) (
	catalog.Lock, error,
) {
	return c.revise(ctx, onLock("seed the fence of", s.Name), seeding(s, atLeast))
}

// revise is modifyLock for an update that raises only rev.
func (c *Catalog) revise(ctx context.Context, o operation, m modification) (catalog.Lock, error) {
	l, err := c.modifyLock(ctx, o, m)
	if bad := notRaised(err, o.collection, o.name, "rev"); bad != nil {
		return catalog.Lock{}, o.wrap(bad)
	}
	return l, err
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
	l, bad := catalog.ParseLock(raw)
	if bad != nil {
		return catalog.Lock{}, o.wrap(bad)
	}
	return l, nil
}

// findOne returns the document with the string id, nil when there is none.
func (c *Catalog) findOne(
	ctx context.Context, o operation, from *mongo.Collection, id string,
) (bson.Raw, error) {
	o.database = c.database
	ctx, cancel, err := c.begin(ctx)
	if err != nil {
		return nil, o.wrap(err)
	}
	defer cancel()
	raw, err := from.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
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
