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
	"mongodlm/catalog/transition"
)

func onLock(verb, name string) operation {
	return operation{
		verb: verb, name: name, quoted: true,
		collection: catalog.LocksCollection, actions: "find, insert, update",
	}
}

// Apply is documented in [catalog.Locks]. A compare-and-set is the form of every transition. Those
// that have one command of their own, where the server and the document are as we expect, are
// these:
func (c *Catalog) Apply(ctx context.Context, t catalog.Transition) (catalog.Lock, []catalog.Grant, error) {
	o := onLock(transition.Of(t), t.On())
	if s, ok := transition.Under(t); ok {
		o.session, _ = catalog.TransactionUnder(ctx, s).(*mongo.Session)
	}
	switch t := t.(type) { // whatever the server
	case transition.Enter:
		if err := t.Check(); err != nil {
			return catalog.Lock{}, nil, o.wrap(err)
		}
		if t.How == catalog.TryPlain {
			l, err := c.claim(ctx, o, t.Request)
			return l, nil, err
		}
	case transition.Overtake:
		return c.overtake(ctx, o, t)
	case transition.Break:
		l, err := c.breakLock(ctx, o, t)
		return l, nil, err
	}
	server, err := c.known(ctx)
	if err != nil {
		return catalog.Lock{}, nil, o.wrap(err)
	}
	switch t := t.(type) {
	case transition.Enter:
		return c.enter(ctx, o, server, t)
	case transition.Leave:
		grants, err := c.leave(ctx, o, server, t)
		return catalog.Lock{}, grants, err
	case transition.Evict:
		return c.evict(ctx, o, server, t)
	case transition.SeedFence:
		if server.PipelineUpdates {
			return c.atOnce(ctx, o, seeding(t.Session, t.AtLeast))
		}
	case transition.Renew:
		if server.PipelineUpdates {
			_, _, err := c.atOnce(ctx, o, renewing(t.Renewal))
			return catalog.Lock{}, nil, err
		}
	}
	l, grants, err := c.bySwap(ctx, o, t)
	if _, ok := t.(transition.PutFirst); ok && err == nil {
		c.entered(l)
	}
	return l, grants, err
}

// claim is Enter by [catalog.TryPlain]. One command.
func (c *Catalog) claim(ctx context.Context, o operation, r catalog.Request) (catalog.Lock, error) {
	doc, err := c.modify(ctx, o, acquisition(r))
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

// overtake is one command; where the document is not as we write it, or not as it was watched, a
// compare-and-set more.
func (c *Catalog) overtake(ctx context.Context, o operation, t transition.Overtake) (
	catalog.Lock, []catalog.Grant, error,
) {
	if !t.From.TS.IsZero() {
		doc, err := c.modify(ctx, o, takeover(t.Request, t.From))
		if err != nil {
			return catalog.Lock{}, nil, err
		}
		if doc != nil {
			l, err := o.understand(doc)
			return l, nil, err
		}
	}
	return c.bySwap(ctx, o, t)
}

// atOnce carries out a transition that has one command where the server has pipeline updates, and
// one more when the lock is not as it should be.
func (c *Catalog) atOnce(ctx context.Context, o operation, m modification) (
	catalog.Lock, []catalog.Grant, error,
) {
	doc, err := c.modify(ctx, o, m)
	switch {
	case err != nil:
		return catalog.Lock{}, nil, err
	case doc == nil:
		return catalog.Lock{}, nil, c.unmatched(ctx, o)
	case m.fields != nil: // the document stays there
		return catalog.Lock{}, nil, nil
	}
	l, err := o.understand(doc)
	return l, nil, err
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
