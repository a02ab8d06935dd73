package mongocatalog

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

func onLock(verb, name string) operation {
	return on(catalog.LocksCollection, "find, insert, update", verb, name)
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
		if !t.From.TS.IsZero() {
			return c.fast(ctx, o, takeover(t.Request, t.From), t)
		}
	}
	server, err := c.known(ctx)
	if err != nil {
		return catalog.Lock{}, nil, o.wrap(err)
	}
	switch t := t.(type) {
	case transition.Enter:
		return c.enter(ctx, o, server, t)
	case transition.Leave:
		return c.leave(ctx, o, server, t)
	}
	if server.PipelineUpdates {
		switch t := t.(type) {
		case transition.Evict:
			if !t.Waits { // who had the lock to itself, followed by one who wants it so
				return c.fast(ctx, o, shortEviction(t.Holder, t.Evidence), t)
			}
		case transition.SeedFence:
			return c.fast(ctx, o, seeding(t.Session, t.AtLeast), t)
		case transition.Renew:
			return c.fast(ctx, o, renewing(t.Renewal), t)
		}
	}
	l, grants, err := c.bySwap(ctx, o, t)
	if _, ok := t.(transition.PutFirst); ok && err == nil {
		c.entered(l)
	}
	return l, grants, err
}

// fast sends the one command that a transition has in the common case. What that does not match, a
// document that is not as we write it or not as the transition needs it, a compare-and-set decides.
func (c *Catalog) fast(ctx context.Context, o operation, m modification, t catalog.Transition) (
	catalog.Lock, []catalog.Grant, error,
) {
	doc, err := c.modify(ctx, o, m)
	switch {
	case err != nil:
		return catalog.Lock{}, nil, err
	case doc == nil:
		return c.bySwap(ctx, o, t)
	case m.fields != nil: // the document stays there
		return catalog.Lock{}, fresh(doc), nil
	}
	l, err := o.understand(doc)
	return l, nil, err
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

// understand reads a document that came back.
func (o operation) understand(doc bson.Raw) (catalog.Lock, error) {
	l, bad := catalog.ParseLock(doc)
	if bad != nil {
		return catalog.Lock{}, o.wrap(bad)
	}
	return l, nil
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
) (raw bson.Raw, err error) {
	err = c.run(ctx, o, func(ctx context.Context) (err error) {
		raw, err = from.FindOne(ctx, bson.D{{Key: "_id", Value: id}}).Raw()
		if errors.Is(err, mongo.ErrNoDocuments) {
			err = nil
		}
		return err
	})
	return raw, err
}

// matched returns how many documents an update matched or a delete removed.
func matched(reply bson.Raw) int {
	n, _ := reply.Lookup("n").AsInt64OK()
	return int(n)
}
