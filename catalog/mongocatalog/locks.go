package mongocatalog

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"mongodlm/catalog"
	"mongodlm/catalog/transition"
)

func onLock(op catalog.Op, name string) operation {
	return on(catalog.LocksCollection, "find, insert, update", string(op), name)
}

// Apply is documented in [catalog.Locks]. It can apply every transition by compare-and-set. For
// Enter, Leave, Evict, SeedFence and Renew, it first sends a single command without a read, if the
// server supports such a command. If the command matches no document, Apply uses compare-and-set.
func (c *Catalog) Apply(ctx context.Context, t catalog.Transition) (
	catalog.Lock, []catalog.Grant, error,
) {
	o := onLock(t.Op(), t.On())
	if s, ok := transition.Under(t); ok {
		o.session, _ = catalog.TransactionUnder(ctx, s).(*mongo.Session)
	}
	switch t := t.(type) { // on every server, without a Hello
	case transition.Enter:
		if err := t.Check(); err != nil {
			return catalog.Lock{}, nil, o.wrap(err)
		}
		if t.How == catalog.TryPlain {
			l, err := c.tryPlain(ctx, o, t.Request)
			return l, nil, err
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
			if !t.Waits { // shortEviction matches only an exclusive holder
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

// fast sends the single command for a transition. If the command matches no document, fast applies
// the transition by compare-and-set.
func (c *Catalog) fast(ctx context.Context, o operation, m modification, t catalog.Transition) (
	catalog.Lock, []catalog.Grant, error,
) {
	doc, err := c.modify(ctx, o, m)
	switch {
	case err != nil:
		return catalog.Lock{}, nil, err
	case doc == nil:
		return c.bySwap(ctx, o, t)
	case m.fields != nil: // doc is not the whole document
		return catalog.Lock{}, fresh(doc), nil
	}
	l, err := o.understand(doc)
	return l, nil, err
}

// tryPlain is Enter with [catalog.TryPlain]. It sends one command.
func (c *Catalog) tryPlain(
	ctx context.Context, o operation, r catalog.Request,
) (catalog.Lock, error) {
	doc, err := c.modify(ctx, o, acquisition(r))
	// A unique index of another program may reject the document. Then waiting does not help, so the
	// caller gets the server's error, which names the index.
	if index, ok := duplicateKey(err); ok && index == idIndex {
		return catalog.Lock{}, o.wrap(catalog.ErrNotFree)
	}
	if err != nil {
		return catalog.Lock{}, err
	}
	return o.understand(doc)
}

// enter sends the command of fastEntry. If that command did not enter the session, enter applies
// the transition by compare-and-set. For example, the command does not enter a reader that must
// wait. It also fails if another contender inserts the document at the same time.
func (c *Catalog) enter(ctx context.Context, o operation, s catalog.Server, t transition.Enter) (
	l catalog.Lock, grants []catalog.Grant, err error,
) {
	m, ok := fastEntry(s, t.Request, t.How)
	if ok && t.Since.IsZero() { // fastEntry queues only at the end
		doc, err := c.modify(ctx, o, m)
		index, duplicate := duplicateKey(err)
		if err != nil && (!duplicate || index != idIndex) {
			return catalog.Lock{}, nil, err
		}
		if l, bad := catalog.ParseLock(doc); err == nil && bad == nil && hasSession(l, t.TS) {
			c.entered(l)
			return l, nil, nil
		}
	}
	if l, grants, err = c.bySwap(ctx, o, t); err == nil {
		c.entered(l)
	}
	return l, grants, err
}

// fastEntry returns the single command for the common case of an Enter, and reports whether there
// is such a command. If the command cannot enter r, it does not change the document. It then fails
// with DuplicateKey, or returns a document without r.
func fastEntry(s catalog.Server, r catalog.Request, how catalog.EnterMode) (modification, bool) {
	switch {
	case r.Mode == catalog.Exclusive && how != catalog.Queue:
		return acquisition(r), true
	case !s.PipelineUpdates:
		return modification{}, false
	case r.Mode == catalog.Exclusive:
		return shortEntry(r), true
	}
	return sharedEntry(r, how), true
}

func hasSession(l catalog.Lock, ts bson.ObjectID) bool {
	_, holds := l.HeldBy(ts)
	_, waits := l.WaitedBy(ts)
	return holds || waits
}

// entered records the use of a lock. The next release selects its command by this record.
func (c *Catalog) entered(l catalog.Lock) {
	c.used.note(l.Name, use{mode: l.Mode, waiters: len(l.Waiters) > 0})
}

// leave sends the command that fits the recorded use of the lock. If the lock has waiters that are
// not recorded, leave sends a second command. If no document matches, leave applies the transition
// by compare-and-set. This happens, for example, if the session is a waiter, if a leaving reader
// lets waiters become holders, or if another program wrote the document.
func (c *Catalog) leave(ctx context.Context, o operation, s catalog.Server, t transition.Leave) (
	catalog.Lock, []catalog.Grant, error,
) {
	if n := t.Enqueue; n != nil && (n.Mode != catalog.Exclusive || n.Limit != 0) {
		t.Enqueue = nil // package transition never queues it
	}
	used := c.used.of(t.Name)
	if used == (use{}) {
		reply, err := c.write(ctx, o, plainRelease(t.Session))
		if err != nil || matched(reply) > 0 {
			return catalog.Lock{}, nil, err
		}
	}
	var doc bson.Raw
	var err error
	switch {
	case !s.PipelineUpdates:
	case used.mode != catalog.Exclusive:
		doc, err = c.modify(ctx, o, sharedDeparture(t.Session, used.mode))
	default:
		c.used.note(t.Name, use{waiters: true}) // if the command fails, the next try begins with it
		doc, err = c.modify(ctx, o, shortDeparture(t, ""))
		if grants := fresh(doc); doc != nil && err == nil {
			c.used.note(t.Name, use{waiters: len(grants) > 0})
		}
	}
	if err != nil {
		return catalog.Lock{}, nil, err
	}
	if doc == nil {
		l, grants, err := c.bySwap(ctx, o, t)
		if err == nil {
			c.entered(l)
		}
		return l, grants, err
	}
	var l catalog.Lock
	if t.Enqueue != nil {
		l, _ = catalog.ParseLock(doc) // malformed if the fence exceeds its limit
	}
	return l, fresh(doc), nil
}

// fresh returns the grants that a command made, from the document that the command returned. If the
// fence exceeds its limit, the document is malformed and fresh returns nil.
func fresh(doc bson.Raw) []catalog.Grant {
	l, _ := catalog.ParseLock(doc)
	ms, _ := doc.Lookup("now").DateTimeOK()
	now := time.UnixMilli(ms)
	var grants []catalog.Grant
	for _, a := range l.Grants {
		if p, ok := l.HeldBy(a.TS); ok && p.Since.Equal(now) {
			grants = append(grants, a)
		}
	}
	return grants
}

// A use is the mode of a lock and the presence of waiters, as this process last read them. It
// selects the first command of a release. If the use has changed since, the command matches no
// document.
type use struct {
	mode    catalog.Mode
	waiters bool
}

// usedNames records the use of each lock that had waiters or was not exclusive.
type usedNames struct {
	mu    sync.Mutex // guards names
	names map[string]use
}

// namesAtMost is the largest number of names in usedNames.
const namesAtMost = 10_000

func (n *usedNames) note(name string, u use) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case u == use{}:
		delete(n.names, name)
		return
	case n.names == nil || len(n.names) >= namesAtMost:
		n.names = map[string]use{}
	}
	n.names[name] = u
}

func (n *usedNames) of(name string) use {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[name]
}

func (o operation) understand(doc bson.Raw) (catalog.Lock, error) {
	l, bad := catalog.ParseLock(doc)
	if bad != nil {
		return catalog.Lock{}, o.wrap(bad)
	}
	return l, nil
}

// Read is documented in [catalog.Locks]. It sends one command. If the server is not known yet, it
// first calls Hello. The read concern is linearizable on a replica set, and majority on any other
// server.
func (c *Catalog) Read(ctx context.Context, name string) (catalog.Lock, error) {
	o := onLock(catalog.OpRead, name)
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

// findOne returns the document with the string id; nil if it does not exist.
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

// matched returns the number of documents that an update matched, or that a delete removed.
func matched(reply bson.Raw) int {
	n, _ := reply.Lookup("n").AsInt64OK()
	return int(n)
}

// PruneLocks is documented in [catalog.Pings]. It sends one read and one delete. The delete matches
// a document only if its state, session and rev have not changed since the read.
func (c *Catalog) PruneLocks(ctx context.Context, before time.Time, after string, limit int) (
	pruned int, next string, err error,
) {
	o := on(catalog.LocksCollection, "find, remove", string(catalog.OpPruneLocks))
	var statements bson.A
	read := 0
	find := options.Find().SetSort(byID).SetLimit(int64(limit))
	err = c.find(ctx, o, c.locks, call("_id", call("$gt", after)), find, func(raw bson.Raw) {
		read++
		next, _ = raw.Lookup("_id").StringValueOK()
		if s, rev, ok := catalog.Prunable(raw, before); ok {
			statements = append(statements, removing(unused(s, rev), 1))
		}
	})
	if read < limit {
		next = ""
	}
	if err != nil || len(statements) == 0 {
		return 0, next, err
	}
	reply, err := c.write(ctx, o, deletion(o.collection, statements...))
	if err != nil {
		return 0, next, err
	}
	return matched(reply), next, nil
}

// unused is the condition that the document of a free lock has not been written since the read of s
// and rev.
func unused(s catalog.Session, rev int64) bson.D {
	return bson.D{
		{Key: "_id", Value: s.Name}, {Key: "ts", Value: s.TS}, {Key: "rev", Value: rev},
		{Key: "state", Value: bson.D{{Key: "$gte", Value: int32(0)}, {Key: "$lte", Value: int32(0)}}},
		{Key: "waiters", Value: none}, unwaited,
	}
}
